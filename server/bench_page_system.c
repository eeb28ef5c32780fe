/* bench_page_system.c: the page of `kofn bench system`: throughput, real and CPU time of each
 * kernel and pool with the range of the rounds, and the verdicts in words. */
#include <stdlib.h>

#include "server/bench.h"

static const char *const workloads[] = {"put", "get", "degraded"};
static const char *const kinds[] = {"kernel", "pool"};

static const char *text(const json_t *o, const char *name) {
  const char *s = json_string_value(json_object_get(o, name));
  return s ? s : "";
}

static double part(const json_t *o, const char *spread, const char *name) {
  return json_number_value(json_object_get(json_object_get(o, spread), name));
}

static void chart_add(struct bench_chart *c, const json_t *rows, const char *workload,
                      const char *kind, const char *figure, const char *series, bool other) {
  size_t i;
  json_t *row;
  json_array_foreach(rows, i, row) {
    if (strcmp(text(row, "workload"), workload) != 0 || strcmp(text(row, "kind"), kind) != 0 ||
        !json_object_get(row, figure))
      continue;
    bench_chart_set(c, bench_chart_series(c, series, other),
                    bench_chart_point(c, text(row, "name")), part(row, figure, "median"),
                    part(row, figure, "min"), part(row, figure, "max"));
  }
}

static void page_charts(FILE *out, const json_t *rows, const json_t *others, const char *workload,
                        const char *kind) {
  char title[96];
  struct bench_chart *throughput = calloc(1, sizeof *throughput), *times = calloc(1, sizeof *times);
  if (throughput && times) {
    snprintf(title, sizeof title, "%s by %s", workload, kind);
    throughput->title = times->title = title;
    throughput->unit = "MB/s";
    times->unit = "s";
    for (int other = 0; other <= 1; other++) {
      const json_t *from = other ? others : rows;
      chart_add(throughput, from, workload, kind, "mb_s", "throughput", other);
      chart_add(times, from, workload, kind, "real", "real", other);
      chart_add(times, from, workload, kind, "user", "user, all hosts", other);
      chart_add(times, from, workload, kind, "system", "system, all hosts", other);
    }
    if (throughput->point_count > 0) {
      bench_svg_bars(out, throughput);
      bench_svg_bars(out, times);
    }
  }
  free(throughput);
  free(times);
}

void bench_page_system(FILE *out, const json_t *doc, const json_t *against) {
  const json_t *rows = json_object_get(doc, "rows"), *others = json_object_get(against, "rows");
  size_t i, j;
  json_t *row, *verdict;
  fprintf(out,
          "<p>%lld objects of %lld bytes over %lld connections in each step; bars are medians, "
          "lines the range of the rounds.</p>\n",
          (long long)json_integer_value(json_object_get(doc, "objects")),
          (long long)json_integer_value(json_object_get(doc, "size")),
          (long long)json_integer_value(json_object_get(doc, "connections")));
  for (size_t w = 0; w < ARRAY_LEN(workloads); w++) {
    fprintf(out, "<h2>%s</h2><section>\n", workloads[w]);
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++)
      page_charts(out, rows, others, workloads[w], kinds[k]);
    fputs("</section>\n<ul>\n", out);
    json_array_foreach(rows, i, row) {
      if (strcmp(text(row, "workload"), workloads[w]) != 0) continue;
      json_array_foreach(json_object_get(row, "verdicts"), j, verdict) {
        fputs("<li>", out);
        bench_html_text(out, text(row, "kind"));
        fputc(' ', out);
        bench_html_text(out, text(row, "name"));
        fputs(": ", out);
        bench_html_text(out, text(verdict, "words"));
        fputs("</li>\n", out);
      }
    }
    fputs("</ul>\n", out);
  }
}
