/* cmd_config.c: `kofn config check|print FILE`. */
#include <stdio.h>

#include "codec/codec.h"
#include "config/err.h"
#include "server/cmd.h"

/* Which XOR loops there are is known to the codec, and whether they run here to the CPU. */
static int check_xor_kernel(const struct settings *s, struct settings_error *err) {
  char known[256] = "auto", place[128] = "environment: KOFN_CODEC_XOR_KERNEL";
  const char *name = s->codec.xor_kernel;
  if (strcmp(name, "auto") == 0) return 0;
  for (unsigned i = 0; xor_kernel_at(i); i++) {
    if (strcmp(name, xor_kernel_at(i)) == 0) return 0;
    size_t len = strlen(known);
    snprintf(known + len, sizeof known - len, ", %s", xor_kernel_at(i));
  }
  if (s->codec.xor_kernel_line > 0)
    snprintf(place, sizeof place, "%d: codec.xor_kernel", s->codec.xor_kernel_line);
  snprintf(err->text, sizeof err->text, "%s%s%s: \"%s\" is no XOR kernel of this CPU (%s)",
           s->codec.xor_kernel_line > 0 ? s->file : "", s->codec.xor_kernel_line > 0 ? ":" : "",
           place, name, known);
  return ERR_CONFIG;
}

int cmd_check_pools(const struct settings *s, struct settings_error *err) {
  for (unsigned i = 0; i < s->pool_count; i++) {
    const struct settings_pool *p = &s->pools[i];
    int technique = technique_find(p->technique);
    struct profile profile = {.technique = (uint8_t)(technique < 0 ? 0 : technique),
                              .k = (uint8_t)p->k,
                              .m = (uint8_t)p->m,
                              .unit_bytes = p->stripe_unit_bytes};
    char why[256];
    if (technique >= 0 && codec_check(&profile, why, sizeof why) == 0) continue;
    if (technique < 0) snprintf(why, sizeof why, "there is no technique `%s`", p->technique);
    snprintf(err->text, sizeof err->text, "%s:%d: pools[%u].technique: %s",
             s->file ? s->file : "(no file)", p->line, i, why);
    return ERR_CONFIG;
  }
  return check_xor_kernel(s, err);
}

static void config_describe(const struct settings *s, const struct cluster_map *map) {
  printf("%s: cluster `%s`: %u hosts, %u drives, this host is `%s`\n", s->file, map->name,
         map->host_count, map->drive_count, map->hosts[map->self].id);
  for (unsigned i = 0; i < map->pool_count; i++) {
    const struct map_pool *p = &map->pools[i];
    char words[512];
    cluster_map_survival(map, i, words, sizeof words);
    printf("pool `%s`: %u+%u %s on %u drives, W %u, R %u: %s\n", p->name, p->profile.k,
           p->profile.m, technique_name(p->profile.technique), p->drive_count, p->w, p->r, words);
  }
}

int cmd_config(int argc, char **argv) {
  if (argc != 3) return cmd_misused("config", "wants `check` or `print`, and a file");
  bool check = strcmp(argv[1], "check") == 0;
  if (!check && strcmp(argv[1], "print") != 0)
    return cmd_misused("config", "there is no `%s`", argv[1]);
  struct settings *s = NULL;
  struct cluster_map *map = NULL;
  struct settings_error err = {""};
  int result = CMD_REFUSED;
  if (settings_load(argv[2], &s, &err) < 0) goto out;
  if (cluster_map_build(s, &map, &err) < 0) goto out;
  if (cmd_check_pools(s, &err) < 0) goto out;
  if (check)
    config_describe(s, map);
  else
    settings_print(s, stdout);
  result = CMD_OK;
out:
  if (result != CMD_OK) fprintf(stderr, "%s\n", err.text);
  cluster_map_free(map);
  settings_free(s);
  return result;
}
