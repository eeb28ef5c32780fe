/* bench_page.c: JSON files of runs, and the self-contained page of one, beside another.
 *
 * The page has no script and names nothing outside itself: it can be mailed and opened anywhere. */
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "config/err.h"
#include "server/bench.h"

int bench_load_json(const char *path, const char *kind, json_t **ret_doc,
                    char why[BENCH_WHY_BYTES]) {
  json_error_t error;
  json_t *doc = json_load_file(path, 0, &error);
  const char *found = json_string_value(json_object_get(doc, "kofn_bench"));
  if (doc && found && strcmp(found, kind) == 0) {
    *ret_doc = doc;
    return 0;
  }
  if (!doc)
    snprintf(why, BENCH_WHY_BYTES, "%.120s: %.120s", path, error.text);
  else
    snprintf(why, BENCH_WHY_BYTES, "%.120s was not written by `kofn bench %s --json`", path, kind);
  json_decref(doc);
  return ERR_INVALID;
}

/* Beside the place and renamed: a reader never sees half of it. */
static FILE *save_begin(const char *path, char *tmp, size_t cap) {
  int len = snprintf(tmp, cap, "%s.%ld.tmp", path, (long)getpid());
  FILE *out = len > 0 && (size_t)len < cap ? fopen(tmp, "we") : NULL;
  if (!out) fprintf(stderr, "kofn bench: cannot write %s: %s\n", path, err_words(-errno));
  return out;
}

static int save_end(FILE *out, const char *path, const char *tmp, bool ok) {
  ok = !ferror(out) && ok;
  ok = fclose(out) == 0 && ok;
  if (ok && rename(tmp, path) == 0) return 0;
  fprintf(stderr, "kofn bench: cannot write %s: %s\n", path, err_words(-errno));
  unlink(tmp);
  return ERR_INVALID;
}

int bench_save_json(const char *path, const json_t *doc) {
  char tmp[4096];
  FILE *out = save_begin(path, tmp, sizeof tmp);
  if (!out) return ERR_INVALID;
  bool ok = json_dumpf(doc, out, JSON_INDENT(1) | JSON_REAL_PRECISION(6)) == 0;
  fputc('\n', out);
  return save_end(out, path, tmp, ok);
}

static void page_machine(FILE *out, const json_t *doc, const char *what) {
  const json_t *m = json_object_get(doc, "machine");
  const char *cpu = json_string_value(json_object_get(m, "cpu"));
  const char *kernel = json_string_value(json_object_get(m, "kernel"));
  const char *version = json_string_value(json_object_get(doc, "version"));
  fprintf(out, "<p><b>%s</b>: kofn ", what);
  bench_html_text(out, version ? version : "?");
  fprintf(out, " on %lld cores of ", (long long)json_integer_value(json_object_get(m, "cores")));
  bench_html_text(out, cpu ? cpu : "?");
  fprintf(out, ", last-level cache %lld MiB, Linux ",
          (long long)json_integer_value(json_object_get(m, "cache_l3")) >> 20);
  bench_html_text(out, kernel ? kernel : "?");
  fprintf(out, ", load %.1f at the start, %lld rounds.</p>\n",
          json_number_value(json_object_get(m, "load")),
          (long long)json_integer_value(json_object_get(doc, "rounds")));
}

int bench_save_page(const char *path, const json_t *doc, const json_t *against) {
  char tmp[4096];
  const char *kind = json_string_value(json_object_get(doc, "kofn_bench"));
  FILE *out = save_begin(path, tmp, sizeof tmp);
  if (!out) return ERR_INVALID;
  fprintf(out,
          "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
          "<title>kofn bench %s</title>\n<style>\n"
          "body{font:14px/1.4 sans-serif;margin:24px;color:#1f2328;background:#fff}\n"
          "section{display:grid;grid-template-columns:repeat(auto-fill,minmax(400px,1fr));"
          "gap:12px}\nsvg{width:100%%;height:auto;border:1px solid #d0d7de;border-radius:6px}\n"
          "svg text{font:11px sans-serif;fill:#1f2328}svg .t{font-weight:bold}"
          "svg .a{font-size:10px}svg .g{stroke:#d8dee4}svg .w{stroke:#1f2328}\n"
          "table{border-collapse:collapse}td,th{border:1px solid #d0d7de;padding:2px 8px;"
          "text-align:right}th{background:#f6f8fa}td:first-child{text-align:left}\n"
          "</style></head><body>\n<h1>kofn bench %s</h1>\n",
          kind, kind);
  page_machine(out, doc, "This run");
  if (against) page_machine(out, against, "The other run (dashed)");
  if (strcmp(kind, "codec") == 0)
    bench_page_codec(out, doc, against);
  else
    bench_page_system(out, doc, against);
  fputs("</body></html>\n", out);
  return save_end(out, path, tmp, true);
}
