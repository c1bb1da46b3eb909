/* Tests that StableHLO's test files are made of, run on several chips of the software TPU: what goes wrong is told, and
 * nobody waits for ever. What goes well is in tests/stablehlo. */
#include "check.h"
#include "check/check.h"

static check_outcome run(const char *text) {
  check_outcome out;
  pjrt_client *c = NULL;
  memset(&out, 0, sizeof out);
  if (!CHECK_OK(pjrt_client_new(TTPU_SOFT_PATH, "topology=v5e:2x2", &c))) return out;
  check_run(c, text, strlen(text), &out);
  pjrt_client_free(c);
  return out;
}

#define TOKEN "!stablehlo.token"
#define CHANNEL(n) "channel_handle = #stablehlo.channel_handle<handle = " #n ", type = 3>, is_host_transfer = true"
#define RECEIVER(name, type)                                                                                         \
  "func.func @" name "(%t: " TOKEN ") -> " type                                                                      \
  " {\n %0:2 = \"stablehlo.recv\"(%t) {" CHANNEL(5) "} : (" TOKEN ") -> (" type ", " TOKEN ")\n return %0#0 : " type \
                                                    "\n}\n"
#define SENDER                                                                                                       \
  "func.func @sender(%t: " TOKEN ") -> " TOKEN                                                                       \
  " {\n %x = stablehlo.constant dense<[1.0, 2.0]> : tensor<2xf32>\n"                                                 \
  " %0 = \"stablehlo.send\"(%x, %t) {" CHANNEL(5) "} : (tensor<2xf32>, " TOKEN ") -> " TOKEN "\n return %0 : " TOKEN \
                                                  "\n}\n"

TEST(what_one_sends_another_receives) {
  check_outcome out = run("module {\n" SENDER RECEIVER(
      "receiver",
      "tensor<2xf32>") "func.func @main() {\n"
                       " %t = stablehlo.create_token : " TOKEN
                       "\n"
                       " %r:2 = \"interpreter.run_parallel\"(%t, %t) {programs = [[@receiver], [@sender]]} : (" TOKEN
                       ", " TOKEN ") -> (tensor<2xf32>, " TOKEN
                       ")\n"
                       " check.expect_eq_const %r#0, dense<[1.0, 2.0]> : tensor<2xf32>\n return\n}\n}\n");
  CHECK_EQ(out.stage, CHECK_PASSED);
  CHECK_EQ(out.count, 1);
}

TEST(who_waits_for_nobody_fails) {
  check_outcome out = run("module {\n" SENDER RECEIVER(
      "receiver",
      "tensor<2xf32>") "func.func @main() {\n"
                       " %t = stablehlo.create_token : " TOKEN
                       "\n"
                       " %r:3 = \"interpreter.run_parallel\"(%t, %t, %t) {programs = [[@receiver], [@sender], "
                       "[@receiver]]} : (" TOKEN ", " TOKEN ", " TOKEN ") -> (tensor<2xf32>, " TOKEN
                       ", tensor<2xf32>)\n check.expect_eq %r#0, %r#2 : tensor<2xf32>\n return\n}\n}\n");
  CHECK_EQ(out.stage, CHECK_RUN);
  CHECK_HAS(out.message, "channel 5: the host ended the transfer after 0 of 8 bytes");
}

TEST(a_letter_of_another_size_fails_who_reads_it) {
  check_outcome out = run("module {\n" SENDER RECEIVER(
      "receiver",
      "tensor<f32>") "func.func @main() {\n"
                     " %t = stablehlo.create_token : " TOKEN
                     "\n"
                     " %r:2 = \"interpreter.run_parallel\"(%t, %t) {programs = [[@sender, @receiver]]} : (" TOKEN
                     ", " TOKEN ") -> (" TOKEN
                     ", tensor<f32>)\n"
                     " check.expect_eq_const %r#1, dense<1.0> : tensor<f32>\n return\n}\n}\n");
  CHECK_EQ(out.stage, CHECK_RUN);
  CHECK_HAS(out.message, "channel 5");
}

/* One function on each chip of a grid. */
static check_outcome run_same(const char *operation, const char *programs, const char *operands, const char *types) {
  char text[4096];
  snprintf(text, sizeof text,
           "module {\nfunc.func @f(%%x: tensor<2xi32>) -> tensor<2xi32> {\n %%0 = %s\n return %%0 : tensor<2xi32>\n}\n"
           "func.func @main() {\n %%x = stablehlo.constant dense<[3, 4]> : tensor<2xi32>\n"
           " %%r:2 = \"interpreter.run_parallel\"(%s) {programs = %s} : (%s) -> (tensor<2xi32>, tensor<2xi32>)\n"
           " check.expect_eq %%r#0, %%r#1 : tensor<2xi32>\n return\n}\n}\n",
           operation, operands, programs, types);
  return run(text);
}

static const char broadcast[] =
    "\"stablehlo.collective_broadcast\"(%x, %x) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, "
    "has_dynamic_root} : (tensor<2xi32>, tensor<2xi32>) -> tensor<2xi32>";
static const char far_root[] =
    "\"stablehlo.collective_broadcast\"(%x, %1) {replica_groups = dense<[[0, 1]]> : tensor<1x2xi64>, "
    "has_dynamic_root} : (tensor<2xi32>, tensor<1xi32>) -> tensor<2xi32>";

TEST(roots) {
  char operation[1024];
  check_outcome out = run_same(broadcast, "[[@f], [@f]]", "%x, %x", "tensor<2xi32>, tensor<2xi32>");
  CHECK_EQ(out.stage, CHECK_RUN); /* the function that runs is read when it is needed */
  CHECK_HAS(out.message, "the roots are tensor<2xi32>, expected tensor<1xi32>");
  snprintf(operation, sizeof operation,
           "stablehlo.add %%x, %%x : tensor<2xi32>\n %%1 = stablehlo.constant dense<2> : "
           "tensor<1xi32>\n %%2 = %s",
           far_root);
  out = run_same(operation, "[[@f], [@f]]", "%x, %x", "tensor<2xi32>, tensor<2xi32>");
  CHECK_EQ(out.stage, CHECK_RUN);
  CHECK_HAS(out.message, "the root of result 0 is 2, in a group of 2");
}

TEST(runs_that_do_not_fit) {
  static const char add[] = "stablehlo.add %x, %x : tensor<2xi32>";
  check_outcome out = run_same(add, "[[@f], [@f]]", "%x", "tensor<2xi32>");
  CHECK_HAS(out.message, "1 operands and 2 results for programs that take 2 and give 2");
  out = run_same(add, "[[@f], [@f, @f]]", "%x, %x", "tensor<2xi32>, tensor<2xi32>");
  CHECK_HAS(out.message, "row 1 of the programs has 2, row 0 has 1");
  out = run_same(add, "[[@f], [@g]]", "%x, %x", "tensor<2xi32>, tensor<2xi32>");
  CHECK_HAS(out.message, "there is no function @g");
  out = run_same(add, "[[@f, @f, @f, @f, @f]]", "%x, %x, %x, %x, %x",
                 "tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>, tensor<2xi32>");
  CHECK_HAS(out.message, "a run on 5 chips, there are 4");
}

TEST(transfers_between_devices_are_refused) {
  check_outcome out = run(
      "func.func @main() -> tensor<2xf32> {\n %t = stablehlo.create_token : " TOKEN
      "\n %0:2 = \"stablehlo.recv\"(%t) {channel_handle = #stablehlo.channel_handle<handle = 1, type = 1>} : (" TOKEN
      ") -> (tensor<2xf32>, " TOKEN ")\n return %0#0 : tensor<2xf32>\n}\n");
  CHECK_EQ(out.stage, CHECK_COMPILE);
  CHECK_HAS(out.message, "is_host_transfer");
}
