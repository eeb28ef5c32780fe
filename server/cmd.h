/* cmd.h: the subcommands of the kofn program: argv in, exit status out (0 done, 1 failed, 2 refused
 * or misused). */
#ifndef KOFN_SERVER_CMD_H
#define KOFN_SERVER_CMD_H

#include "config/cluster_map.h"

struct cmd {
  const char *name;
  const char *summary; /* one line for `kofn help` */
  const char *help;    /* whole text for `kofn help NAME` */
  int (*run)(int argc, char **argv);
};

#define CMD_OK 0
#define CMD_FAILED 1
#define CMD_REFUSED 2

int cmd_server(int argc, char **argv);
int cmd_config(int argc, char **argv);
int cmd_status(int argc, char **argv);
int cmd_ready(int argc, char **argv);
int cmd_heal(int argc, char **argv);
int cmd_where(int argc, char **argv);
int cmd_bench(int argc, char **argv);

extern const char cmd_bench_help[];

/* Prints "kofn NAME: what is wrong" and where to look, returns CMD_REFUSED. */
int cmd_misused(const char *name, const char *fmt, ...) _printf_(2, 3);

/* What the layers below config cannot know: every pool's technique is proven for its k and m, and
 * the XOR kernel is one of this CPU's. Fills `err` like settings_load. */
_must_check_ int cmd_check_pools(const struct settings *s, struct settings_error *err);

#endif
