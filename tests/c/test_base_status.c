/* Status codes and messages. */
#include <pthread.h>

#include "check.h"

TEST(codes_are_those_of_pjrt_and_have_names) {
  CHECK_EQ(TTPU_OK, 0);
  CHECK_EQ(TTPU_UNAUTHENTICATED, 16);
  CHECK_STR(base_status_name(TTPU_OK), "OK");
  CHECK_STR(base_status_name(TTPU_INVALID_ARGUMENT), "INVALID_ARGUMENT");
  CHECK_STR(base_status_name(TTPU_RESOURCE_EXHAUSTED), "RESOURCE_EXHAUSTED");
  CHECK_STR(base_status_name(TTPU_UNAUTHENTICATED), "UNAUTHENTICATED");
  CHECK_STR(base_status_name((ttpu_status)17), "(unknown status)");
  CHECK_STR(base_status_name((ttpu_status)-1), "(unknown status)");
}

static ttpu_status fail_twice(void) {
  BASE_TRY(TTPU_OK);
  BASE_TRY(base_fail(TTPU_OUT_OF_RANGE, "index %d of %d", 7, 3));
  return base_fail(TTPU_INTERNAL, "not reached");
}

TEST(a_failure_carries_its_message) {
  CHECK_FAILS(TTPU_OUT_OF_RANGE, "index 7 of 3", fail_twice());
  CHECK_STR(base_message(), "index 7 of 3");
}

TEST(context_goes_before_the_message) {
  base_fail(TTPU_INVALID_ARGUMENT, "rank %d", 17);
  CHECK_EQ(base_fail_context(TTPU_INVALID_ARGUMENT, "in %s", "dot_general"), TTPU_INVALID_ARGUMENT);
  CHECK_STR(base_message(), "in dot_general: rank 17");
}

TEST(the_old_message_may_be_an_argument) {
  base_fail(TTPU_INTERNAL, "first");
  base_fail(TTPU_INTERNAL, "second after %s", base_message());
  CHECK_STR(base_message(), "second after first");
  base_fail_context(TTPU_INTERNAL, "<%s>", base_message());
  CHECK_STR(base_message(), "<second after first>: second after first");
}

TEST(long_messages_are_cut_between_characters) {
  char text[4096];
  memset(text, 'x', sizeof text);
  text[4095] = '\0';
  base_fail(TTPU_INTERNAL, "%s", text);
  CHECK_EQ(strlen(base_message()), 2047);
  base_fail_context(TTPU_INTERNAL, "%s", "where");
  CHECK_EQ(strlen(base_message()), 2047);
  CHECK(strncmp(base_message(), "where: xxx", 10) == 0);
  /* Characters of two, three and four bytes over the cut, at every offset. */
  static const char *const letters[] = {"\xc3\xa9", "\xe2\x82\xac", "\xf0\x9f\x8c\x8d"};
  for (int letter = 0; letter < 3; ++letter)
    for (int shift = 0; shift < 4; ++shift) {
      size_t width = strlen(letters[letter]), at = (size_t)shift;
      memset(text, 'x', sizeof text);
      for (; at + width < 3000; at += width) memcpy(text + at, letters[letter], width);
      text[at] = '\0';
      base_fail(TTPU_INTERNAL, "%s", text);
      size_t length = strlen(base_message());
      CHECK(length <= 2047 && length > 2047 - width);
      CHECK_EQ((length - (size_t)shift) % width, 0);
    }
}

static void *fail_elsewhere(void *unused) {
  (void)unused;
  CHECK_STR(base_message(), "");
  base_fail(TTPU_INTERNAL, "theirs");
  return NULL;
}

TEST(each_thread_has_its_own_message) {
  base_fail(TTPU_INTERNAL, "ours");
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, fail_elsewhere, NULL) == 0);
  pthread_join(thread, NULL);
  CHECK_STR(base_message(), "ours");
}

TEST(what_is_no_utf8_is_replaced) {
  base_fail(TTPU_INVALID_ARGUMENT, "a\xff%s\xed\xa0\x80 \xf0\x9f\x98\x80 \xc3", "\xc3\xa9");
  CHECK_STR(base_message(), "a?\xc3\xa9??? \xf0\x9f\x98\x80 ?");
}
