/* The reader of CompileOptions, a protobuf. What it takes names as many devices as there are programs. */
#include "fuzz.h"
#include "soft/plugin_int.h"

static const char *const options[] = {
    "",
    "1a0420012801",           /* one replica, one partition */
    "1a0420042801",           /* four replicas */
    "1a09200128043001980101", /* four partitions, Shardy */
    "1a1a2001280230014a12080110021a04080010001a0608001001",
    "1a14080020022801300 14a0a080210011a040a020001",
    "2800320b0a03666f6f12040801100228014a00", /* other fields: strings, maps */
};

bool fuzz_seed(uint32_t number, base_text *out) {
  if (number >= sizeof options / sizeof *options) return false;
  unsigned high = 16;
  for (const char *c = options[number]; *c; ++c) {
    if (*c == ' ') continue;
    unsigned digit = (unsigned)(*c <= '9' ? *c - '0' : *c - 'a' + 10);
    if (high == 16) high = digit;
    else base_text_put(out, &(const char){(char)(high << 4 | digit)}, 1), high = 16;
  }
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size) {
  plugin_compile_options o;
  ttpu_status status = plugin_compile_options_parse(bytes, size, &o);
  FUZZ_MUST(status != TTPU_RESOURCE_EXHAUSTED && status != TTPU_INTERNAL);
  if (status == TTPU_OK) {
    FUZZ_MUST(o.replicas > 0 && o.partitions > 0);
    FUZZ_MUST((uint32_t)(o.replicas * o.partitions) / o.partitions == o.replicas);
    FUZZ_MUST(o.assigned == 0 || o.assigned == (uint64_t)o.replicas * o.partitions);
  }
  return 0;
}
