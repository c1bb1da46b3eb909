/* Runs and meetings. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "soft/kern/data.h"
#include "soft/link/link.h"

typedef struct meeting {
  struct meeting *next; /* of the run's open ones */
  const ir_op *op;
  uint32_t group, size, arrived;
  uint32_t leaving; /* members that have yet to read the outcome */
  bool done;
  ttpu_status status;
  char *message; /* NULL: OK, or out of memory */
  link_seat seats[];
} meeting;

struct link_run {
  pthread_mutex_t lock; /* of all that follows */
  pthread_cond_t changed;
  link_grid grid;
  uint32_t refs;
  uint32_t waiting;   /* chips that wait in an open meeting */
  uint32_t finished;  /* chips that have left */
  ttpu_status status; /* of the first chip that failed */
  char message[512];
  meeting *open;
  struct link_run *next; /* in the list of all runs */
};

static pthread_mutex_t all_lock = PTHREAD_MUTEX_INITIALIZER; /* taken before a run's */
static link_run *all;
static bool ended;

static _Thread_local link_chip *here;

link_grid link_grid_here(void) { return here ? here->run->grid : (link_grid){1, 1}; }
uint32_t link_chip_here(void) { return here ? here->number : 0; }

/* ---- failing ----------------------------------------------------------------------------------------------- */

static char *copy_text(const char *text) {
  size_t bytes = strlen(text) + 1;
  char *copy = base_alloc(bytes);
  if (copy) memcpy(copy, text, bytes);
  return copy;
}

/* Ends a meeting, with the lock held. It belongs to those who wait from here on. */
static void close_meeting(link_run *run, meeting *m, ttpu_status status, const char *message) {
  m->status = status;
  m->message = status == TTPU_OK ? NULL : copy_text(message);
  m->done = true;
  run->waiting -= m->leaving;
}

/* The first failure stays; every open meeting ends with it. With the lock held. */
static void fail_run(link_run *run, ttpu_status status, const char *message) {
  if (run->status == TTPU_OK) {
    run->status = status;
    snprintf(run->message, sizeof run->message, "%s", message);
  }
  while (run->open) {
    meeting *m = run->open;
    run->open = m->next;
    close_meeting(run, m, run->status, run->message);
  }
  pthread_cond_broadcast(&run->changed);
}

/* Nobody is left who could come to an open meeting. With the lock held. */
static void check_stuck(link_run *run) {
  if (!run->open || run->waiting + run->finished < run->grid.replicas * run->grid.partitions) return;
  const meeting *m = run->open;
  char message[256];
  snprintf(message, sizeof message,
           "%s: %u of the %u chips of a group have come, the others ended or wait at another collective; do the chips "
           "take different branches?",
           ir_ops[m->op->kind].name, m->arrived, m->size);
  fail_run(run, TTPU_INTERNAL, message);
}

/* ---- runs -------------------------------------------------------------------------------------------------- */

ttpu_status link_run_new(link_grid grid, link_run **out) {
  link_run *run = base_calloc(1, sizeof *run);
  if (!run) return base_no_memory(sizeof *run);
  pthread_mutex_init(&run->lock, NULL);
  pthread_cond_init(&run->changed, NULL);
  run->grid = grid;
  run->refs = grid.replicas * grid.partitions;
  pthread_mutex_lock(&all_lock);
  run->next = all;
  all = run;
  if (ended) fail_run(run, TTPU_UNAVAILABLE, "the process ends");
  pthread_mutex_unlock(&all_lock);
  *out = run;
  return TTPU_OK;
}

static void run_free(link_run *run) {
  pthread_mutex_lock(&all_lock);
  link_run **at = &all;
  while (*at != run) at = &(*at)->next;
  *at = run->next;
  pthread_mutex_unlock(&all_lock);
  pthread_cond_destroy(&run->changed);
  pthread_mutex_destroy(&run->lock);
  base_free(run);
}

void link_end_all(void) {
  pthread_mutex_lock(&all_lock);
  ended = true;
  for (link_run *run = all; run; run = run->next) {
    pthread_mutex_lock(&run->lock);
    fail_run(run, TTPU_UNAVAILABLE, "the process ends");
    pthread_mutex_unlock(&run->lock);
  }
  pthread_mutex_unlock(&all_lock);
}

void link_enter(link_chip *chip, link_run *run, uint32_t number) {
  *chip = (link_chip){run, number, here};
  here = chip;
}

void link_abandon(link_run *run, uint32_t number, ttpu_status status) {
  char message[512];
  if (status != TTPU_OK) snprintf(message, sizeof message, "chip %u of the program: %s", number, base_message());
  pthread_mutex_lock(&run->lock);
  ++run->finished;
  if (status != TTPU_OK) fail_run(run, status, message);
  else check_stuck(run);
  bool last = --run->refs == 0;
  pthread_mutex_unlock(&run->lock);
  if (last) run_free(run);
}

void link_leave(link_chip *chip, ttpu_status status) {
  here = chip->outer;
  link_abandon(chip->run, chip->number, status);
}

/* ---- meetings ------------------------------------------------------------------------------------------------ */

/* The open meeting of the group at op, or a new one. With the lock held; NULL: out of memory. */
static meeting *find_meeting(link_run *run, const ir_op *op, link_group g) {
  for (meeting *m = run->open; m; m = m->next)
    if (m->op == op && m->group == g.number) return m;
  meeting *m = base_calloc(1, sizeof *m + g.size * sizeof m->seats[0]);
  if (!m) return NULL;
  m->op = op;
  m->group = g.number;
  m->size = g.size;
  m->next = run->open;
  run->open = m;
  return m;
}

static void remove_meeting(link_run *run, meeting *m) {
  meeting **at = &run->open;
  while (*at != m) at = &(*at)->next;
  *at = m->next;
}

/* Who waits reads the outcome; the last reader frees the meeting. With the lock held. */
static ttpu_status read_outcome(meeting *m) {
  ttpu_status status = m->status;
  if (status != TTPU_OK) base_fail(status, "%s", m->message ? m->message : "the message was lost: out of memory");
  if (--m->leaving > 0) return status;
  base_free(m->message);
  base_free(m);
  return status;
}

/* The last one in computes for all, while the others stand still; nobody ends the meeting meanwhile, since it is not
 * among the open ones any more. With the lock held, which is open during the computation. */
static ttpu_status hold(link_run *run, meeting *m, const ir_func *f, link_fold_fn fold) {
  remove_meeting(run, m);
  pthread_mutex_unlock(&run->lock);
  ttpu_status status = link_compute(f, m->op, fold, m->size, m->seats);
  pthread_mutex_lock(&run->lock);
  close_meeting(run, m, status, status == TTPU_OK ? "" : base_message());
  pthread_cond_broadcast(&run->changed);
  ++m->leaving; /* this one */
  return read_outcome(m);
}

static ttpu_status meet(link_run *run, const ir_func *f, const ir_op *op, link_fold_fn fold, link_group g,
                        link_seat seat) {
  pthread_mutex_lock(&run->lock);
  ttpu_status status = TTPU_OK;
  meeting *m = NULL;
  if (run->status != TTPU_OK) status = base_fail(run->status, "%s", run->message);
  else if (!(m = find_meeting(run, op, g))) status = base_no_memory(sizeof *m);
  if (m) {
    m->seats[g.mine] = seat;
    if (++m->arrived == m->size) {
      status = hold(run, m, f, fold);
    } else {
      ++m->leaving;
      ++run->waiting;
      check_stuck(run);
      while (!m->done) pthread_cond_wait(&run->changed, &run->lock);
      status = read_outcome(m);
    }
  }
  pthread_mutex_unlock(&run->lock);
  return status;
}

static ttpu_status give_number(const soft_view *y, uint32_t number) {
  base_scalar_store(y->dtype, y->data, (base_scalar){.u = number});
  return TTPU_OK;
}

ttpu_status link_collective(const ir_func *f, const ir_op *op, link_fold_fn fold, const soft_view *operands,
                            const soft_view *results) {
  link_grid grid = link_grid_here();
  uint32_t chip = link_chip_here();
  if (op->kind == IR_REPLICA_ID) return give_number(results, chip / grid.partitions);
  if (op->kind == IR_PARTITION_ID) return give_number(results, chip % grid.partitions);
  link_group g;
  BASE_TRY(link_group_find(op, grid, chip, &g));
  static const char zero[16];
  for (uint32_t i = 0; i < op->result_count && g.size == 0; ++i) kern_fill(&results[i], zero);
  if (g.size == 0) return TTPU_OK;
  link_seat seat = {operands, results};
  if (g.size == 1) return link_compute(f, op, fold, 1, &seat);
  return meet(here->run, f, op, fold, g, seat);
}
