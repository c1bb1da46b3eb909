/* Serves a character-level language model that torch.tpu.export saved, without Python:
 *
 *   serve MODEL [--port N] [--tokens N]
 *
 * With a port it answers HTTP on 127.0.0.1 (0: a free one, which it prints): POST /generate takes a text and gives its
 * continuation. Without, it answers each line of its input with a line. The model takes int64 tokens [1, T] and gives
 * float32 logits [1, T, V]; its metadata "vocabulary" has the V characters. tests/test_export_serve.py makes one.
 *
 * It uses nothing but include/ttpu.h: cc serve.c -Iinclude -Ltorch_tpu/lib -lttpu */
#include <arpa/inet.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "ttpu.h"

enum { LONGEST_TEXT = 1 << 16, MOST_CHARACTERS = 256 };

typedef struct server {
  ttpu_runtime *runtime;
  ttpu_model *model;
  const ttpu_tensor *input, *output; /* tokens [1, context], logits [1, context, vocabulary] */
  const char *vocabulary;            /* one byte a token */
  int64_t context, *window;
  int new_tokens;
} server;

/* ---- the model ---- */

static bool fail(const char *what) {
  fprintf(stderr, "serve: %s\n", what);
  return false;
}

/* Is it such a model? */
static bool check_model(server *s) {
  s->vocabulary = ttpu_model_metadata(s->model, "vocabulary");
  if (!s->vocabulary) return fail("the model has no metadata \"vocabulary\"");
  if (ttpu_model_input_count(s->model) != 1 || ttpu_model_output_count(s->model) != 1)
    return fail("a model of one input and one output is expected");
  s->input = ttpu_model_input(s->model, 0);
  s->output = ttpu_model_output(s->model, 0);
  if (strcmp(s->input->dtype, "int64") != 0 || s->input->rank != 2 || s->input->dims[0] != 1)
    return fail("the input is to be int64 [1, T]");
  s->context = s->input->dims[1];
  if (strcmp(s->output->dtype, "float32") != 0 || s->output->rank != 3 || s->output->dims[1] != s->context ||
      s->output->dims[2] != (int64_t)strlen(s->vocabulary))
    return fail("the output is to be float32 [1, T, V], with V the vocabulary's length");
  s->window = calloc((size_t)s->context, sizeof *s->window);
  return s->window != NULL;
}

static bool open_server(server *s, const char *folder) {
  if (ttpu_runtime_open(NULL, NULL, &s->runtime) || ttpu_model_load(s->runtime, folder, 0, &s->model)) {
    fprintf(stderr, "serve: %s\n", ttpu_message());
    return false;
  }
  return check_model(s);
}

static void close_server(server *s) {
  free(s->window);
  ttpu_model_free(s->model);
  ttpu_runtime_close(s->runtime);
}

/* The likeliest token behind text[0..length); -1: the run failed. */
static int next_token(server *s, const char *text, size_t length) {
  size_t context = (size_t)s->context, used = length < context ? length : context;
  memset(s->window, 0, context * sizeof *s->window);
  for (size_t i = 0; i < used; ++i) {
    char c = text[length - used + i];
    const char *found = c ? strchr(s->vocabulary, c) : NULL;
    s->window[i] = found ? found - s->vocabulary : 0;
  }
  ttpu_tensor tokens = *s->input;
  tokens.data = s->window;
  ttpu_results *results;
  if (ttpu_model_run(s->model, 1, &tokens, &results)) return -1;
  int64_t count = s->output->dims[2];
  const float *logits = (const float *)ttpu_results_at(results, 0)->data + (int64_t)(used - 1) * count;
  int best = 0;
  for (int i = 1; i < count; ++i)
    if (logits[i] > logits[best]) best = i;
  ttpu_results_free(results);
  return best;
}

/* Continues the text in place, which has room; false: the run failed. */
static bool answer(server *s, char *text, size_t *length) {
  if (*length == 0) text[(*length)++] = s->vocabulary[0];
  for (int i = 0; i < s->new_tokens; ++i) {
    int token = next_token(s, text, *length);
    if (token < 0) return false;
    text[(*length)++] = s->vocabulary[token];
  }
  return true;
}

/* ---- lines ---- */

static int serve_lines(server *s) {
  char *text = malloc(LONGEST_TEXT + MOST_CHARACTERS);
  int status = text ? 0 : 1;
  while (status == 0 && fgets(text, LONGEST_TEXT, stdin)) {
    size_t begin = strcspn(text, "\n"), length = begin;
    if (!answer(s, text, &length)) {
      fprintf(stderr, "serve: %s\n", ttpu_message());
      status = 1;
      break;
    }
    printf("%.*s\n", (int)(length - begin), text + begin);
    fflush(stdout);
  }
  free(text);
  return status;
}

/* ---- HTTP ---- */

static void send_all(int connection, const char *bytes, size_t length) {
  while (length > 0) {
    ssize_t sent = send(connection, bytes, length, MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes += sent;
    length -= (size_t)sent;
  }
}

static void reply(int connection, const char *status, const char *body, size_t length) {
  char head[160];
  int n = snprintf(head, sizeof head,
                   "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %zu\r\nConnection: close\r\n\r\n",
                   status, length);
  send_all(connection, head, (size_t)n);
  send_all(connection, body, length);
}

/* A whole request in `text`, NUL-terminated. The body's place; NULL: none came. */
static char *receive(int connection, char *text, size_t room, size_t *body_length) {
  size_t length = 0, wanted = 0;
  char *body = NULL;
  while (!body || length < wanted) {
    ssize_t n = length < room - 1 ? recv(connection, text + length, room - 1 - length, 0) : 0;
    if (n <= 0) return NULL;
    text[length += (size_t)n] = '\0';
    char *end = body ? NULL : strstr(text, "\r\n\r\n");
    if (!end) continue;
    body = end + 4;
    const char *field = strcasestr(text, "\r\nContent-Length:");
    *body_length = field && field < end ? strtoul(field + 17, NULL, 10) : 0;
    wanted = (size_t)(body - text) + *body_length;
    if (wanted >= room) return NULL;
  }
  return body;
}

static void serve_request(server *s, int connection, char *text) {
  size_t length;
  char *body = receive(connection, text, LONGEST_TEXT, &length);
  if (!body) return reply(connection, "400 Bad Request", "bad request\n", 12);
  if (strncmp(text, "POST /generate ", 15) != 0) return reply(connection, "404 Not Found", "POST /generate\n", 15);
  size_t begin = length;
  if (!answer(s, body, &length))
    return reply(connection, "500 Internal Server Error", ttpu_message(), strlen(ttpu_message()));
  reply(connection, "200 OK", body + begin, length - begin);
}

static int serve_port(server *s, unsigned long port) {
  struct sockaddr_in address = {
      .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t size = sizeof address;
  int listener = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
  char *text = malloc(LONGEST_TEXT + MOST_CHARACTERS);
  if (listener < 0 || !text || setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) != 0 ||
      bind(listener, (struct sockaddr *)&address, size) != 0 || listen(listener, 16) != 0 ||
      getsockname(listener, (struct sockaddr *)&address, &size) != 0) {
    perror("serve");
    return 1;
  }
  printf("http://127.0.0.1:%u/generate\n", ntohs(address.sin_port));
  fflush(stdout);
  for (;;) {
    int connection = accept(listener, NULL, NULL);
    if (connection < 0) continue;
    serve_request(s, connection, text);
    close(connection);
  }
}

int main(int argc, char **argv) {
  server s = {.new_tokens = 32};
  const char *folder = NULL, *port = NULL;
  for (int i = 1; i < argc; ++i) {
    if (strcmp(argv[i], "--port") == 0 && i + 1 < argc) port = argv[++i];
    else if (strcmp(argv[i], "--tokens") == 0 && i + 1 < argc) s.new_tokens = atoi(argv[++i]);
    else if (argv[i][0] != '-' && !folder) folder = argv[i];
    else folder = NULL, i = argc;
  }
  if (!folder || s.new_tokens < 1 || s.new_tokens >= MOST_CHARACTERS) {
    fprintf(stderr, "usage: serve MODEL [--port N] [--tokens 1..%d]\n", MOST_CHARACTERS - 1);
    return 2;
  }
  int status = 1;
  if (open_server(&s, folder)) status = port ? serve_port(&s, strtoul(port, NULL, 10)) : serve_lines(&s);
  close_server(&s);
  return status;
}
