/* cmd_bench.c: `kofn bench codec` and `kofn bench system`. */
#include "server/bench_codec.h"
#include "server/bench_system.h"
#include "server/cmd.h"

const char cmd_bench_help[] =
    "usage: kofn bench codec [OPTION...]\n"
    "       kofn bench system [OPTION...]\n\n"
    "codec   measures the erasure code, in the options and columns of Ceph's benchmark:\n"
    "  -p, --plugin LIST      isa (kofn's own), isal-direct (ISA-L without kofn), liberasurecode,\n"
    "                         jerasure (where their Debian packages are installed)\n"
    "  --technique LIST       reed_sol_van, cauchy, xor, xor3p\n"
    "  -k N, -m N             data and parity chunks (4+2)\n"
    "  -P, --parameter N=V    as Ceph's: k, m, technique, packetsize; others are ignored\n"
    "  -s, --size LIST        of the object (1MiB); -i, --iterations N (1); -t, --threads LIST "
    "(1)\n"
    "  -w, --workload WHAT    encode or decode\n"
    "  -e, --erasures N       lost chunks (1); --erased LIST: just these\n"
    "  -E, --erasures-generation  random or exhaustive\n"
    "  --verify               compares what was rebuilt; -v, --verbose says so\n"
    "  --cold                 on buffers that are not in the caches\n"
    "  -r, --rounds N         paired rounds in rotating order (1; 5 with --grid)\n"
    "  --grid                 the table of Ceph's xor_gen change with 4 KiB to 64 MiB, threads, "
    "warm\n"
    "                         and cold, beside every plugin; CRC32C by length; checksums in the\n"
    "                         encoder's pass; every XOR kernel. --only table,crc,passes,xor;\n"
    "                         --seconds N bounds the table (600; 20 with --quick, which is "
    "smaller)\n"
    "system  puts a cluster under PUT, GET and degraded GET, once for each XOR kernel and pool, "
    "and\n"
    "        says which differences are more than noise:\n"
    "  --url URL --admin ADDRESS --user KEY:SECRET [--pid PID]\n"
    "                         of a running cluster, each host's; without them a cluster is "
    "started\n"
    "                         on loopback and removed again\n"
    "  --hosts N, --drives N  of the cluster that is started (3 hosts of 2 drives); --dir DIR\n"
    "  --pool LIST            running: names; started: TECHNIQUE:K+M\n"
    "  --kernels LIST         all unless given; none: only the pools\n"
    "  --workload LIST        put, get, degraded\n"
    "  --size N (1MiB), --objects N (128), --passes N (4), --connections N (8): a step is every\n"
    "                         object so often; --rounds N (6), --seconds N (of a step at most, "
    "30)\n\n"
    "both:   --quick is less work; --json FILE; --html FILE (one page, nothing outside it), with\n"
    "        --against FILE.json beside another run\n\n"
    "Exit status: 0 done, 1 failed, 2 refused.\n";

int cmd_bench(int argc, char **argv) {
  char why[BENCH_WHY_BYTES] = "";
  if (argc >= 2 && strcmp(argv[1], "codec") == 0) {
    static struct bench_codec_options o;
    if (bench_codec_options(argc - 1, argv + 1, &o, why) < 0)
      return cmd_misused("bench", "%s", why);
    return bench_codec_run(&o);
  }
  if (argc >= 2 && strcmp(argv[1], "system") == 0) {
    static struct bench_system_options o;
    if (bench_system_options(argc - 1, argv + 1, &o, why) < 0)
      return cmd_misused("bench", "%s", why);
    return bench_system_run(&o);
  }
  return cmd_misused("bench", "wants `codec` or `system`");
}
