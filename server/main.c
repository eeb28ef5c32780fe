/* main.c: the kofn program: one table of subcommands. */
#include <stdarg.h>
#include <stdio.h>

#include "server/cmd.h"

static const struct cmd cmds[];

static int cmd_version(int argc, char **argv) {
  printf("kofn %s\n", KOFN_VERSION);
  return CMD_OK;
}

static int cmd_help(int argc, char **argv) {
  if (argc < 2) {
    printf(
        "kofn %s: an erasure-coded object store with an S3 front\n\nusage: kofn COMMAND "
        "[ARGUMENT...]\n\n",
        KOFN_VERSION);
    for (const struct cmd *c = cmds; c->name; c++) printf("  %-10s %s\n", c->name, c->summary);
    printf("\n`kofn help COMMAND` says more.\n");
    return CMD_OK;
  }
  for (const struct cmd *c = cmds; c->name; c++) {
    if (strcmp(c->name, argv[1]) != 0) continue;
    fputs(c->help, stdout);
    return CMD_OK;
  }
  return cmd_misused("help", "there is no command `%s`", argv[1]);
}

static const struct cmd cmds[] = {
    {"server", "run one host",
     "usage: kofn server --config FILE\n"
     "       kofn server DIR...\n\n"
     "--config FILE  runs the host that FILE (server.host) or KOFN_SERVER_HOST names.\n"
     "DIR...         runs one host on these local drives, with no file: 1 directory has no "
     "redundancy,\n"
     "               2 are 1+1, 3 are 2+1, 4 are 2+2, 5 are 3+2, 6 and more are 4+2. An access key "
     "pair is\n"
     "               generated at the first start and printed once. S3 on 127.0.0.1:9000, admin "
     "on\n"
     "               127.0.0.1:9002; KOFN_SERVER_S3_LISTEN and other KOFN_SECTION_FIELD variables "
     "change that.\n\n"
     "SIGTERM stops accepting, finishes what runs within server.shutdown_grace, and exits 0.\n"
     "Exit status: 0 stopped, 1 failed while running, 2 refused to start.\n",
     cmd_server},
    {"config", "check or print a configuration",
     "usage: kofn config check FILE\n"
     "       kofn config print FILE\n\n"
     "check  reads FILE as `kofn server` would and says what it describes, with the losses that "
     "each pool\n"
     "       survives; or the first error with file, line, field and allowed range (exit status "
     "2).\n"
     "print  writes the whole configuration with defaults filled in; secrets are shown as "
     "\"(set)\".\n",
     cmd_config},
    {"status", "say how a cluster is",
     "usage: kofn status [--json] [ADMIN]\n\n"
     "ADMIN is a host's admin address (127.0.0.1:9002 unless given). Says which hosts and drives "
     "are in\n"
     "sight and how many more losses every pool survives.\n",
     cmd_status},
    {"ready", "say whether a host can serve now",
     "usage: kofn ready read|write [ADMIN]\n\n"
     "Exit status 0 where the host whose admin address is ADMIN (127.0.0.1:9002 unless given) sees "
     "enough\n"
     "drives to read, or to write, every object; otherwise 1, and the words that say what it "
     "lacks. "
     "For health\n"
     "checks and scripts that wait.\n",
     cmd_ready},
    {"heal", "list what is to be healed",
     "usage: kofn heal list [--json] [ADMIN]\n\n"
     "Lists every key whose last write missed a drive, with the slots that have no chunk, from the "
     "heal\n"
     "queues of all drives in reach of the host whose admin address is ADMIN (127.0.0.1:9002 "
     "unless given).\n",
     cmd_heal},
    {"where", "show on which drives a key lies",
     "usage: kofn where [--json] BUCKET KEY [ADMIN]\n\n"
     "Shows the partition, and for every slot the drive, whether it holds the newest row, and the "
     "state of\n"
     "its chunk. ADMIN is a host's admin address (127.0.0.1:9002 unless given).\n",
     cmd_where},
    {"bench", "measure the erasure code, or a whole cluster", cmd_bench_help, cmd_bench},
    {"version", "print the version", "usage: kofn version\n\nPrints the version.\n", cmd_version},
    {"help", "say how a command is used",
     "usage: kofn help [COMMAND]\n\nSays how a command is used.\n", cmd_help},
    {NULL, NULL, NULL, NULL},
};

int cmd_misused(const char *name, const char *fmt, ...) {
  va_list ap;
  va_start(ap, fmt);
  fprintf(stderr, "kofn %s: ", name);
  vfprintf(stderr, fmt, ap);
  fprintf(stderr, "\n`kofn help %s` says how it is used.\n", name);
  va_end(ap);
  return CMD_REFUSED;
}

int main(int argc, char **argv) {
  if (argc < 2) {
    cmd_help(1, argv);
    return CMD_REFUSED;
  }
  const char *name = argv[1];
  if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0) name = "help";
  if (strcmp(name, "--version") == 0) name = "version";
  for (const struct cmd *c = cmds; c->name; c++) {
    if (strcmp(c->name, name) != 0) continue;
    if (argc == 3 && (strcmp(argv[2], "--help") == 0 || strcmp(argv[2], "-h") == 0)) {
      fputs(c->help, stdout);
      return CMD_OK;
    }
    return c->run(argc - 1, argv + 1);
  }
  fprintf(stderr, "kofn: there is no command `%s`\n`kofn help` lists them.\n", argv[1]);
  return CMD_REFUSED;
}
