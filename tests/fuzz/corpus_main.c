/* corpus_main.c: runs a fuzz target once over files, without libFuzzer and with any compiler.
 *
 *   TARGET FILE_OR_DIRECTORY...   every file once; fails where there is none
 *   TARGET --time FILE            prints the CPU seconds of one run (fuzz.py) */
#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <time.h>

#include "tests/fuzz/fuzz.h"

#define FILE_BYTES_MAX (64u << 20)
#define PATH_BYTES_MAX 4096
#define RUN_SECONDS_MIN 0.1
#define RUNS_MAX 1000

static unsigned file_count;

static uint8_t *file_read(const char *path, size_t *ret_len) {
  FILE *f = fopen(path, "rb");
  struct stat st;
  if (!f || fstat(fileno(f), &st) != 0 || st.st_size > FILE_BYTES_MAX) {
    fprintf(stderr, "%s: cannot be read\n", path);
    exit(1);
  }
  size_t len = (size_t)st.st_size;
  uint8_t *bytes = malloc(len);
  if ((!bytes && len) || (len && fread(bytes, 1, len, f) != len)) {
    fprintf(stderr, "%s: cannot be read\n", path);
    exit(1);
  }
  fclose(f);
  *ret_len = len;
  return bytes;
}

/* The name goes out first: a crash then says where. */
static void run_file(const char *path) {
  size_t len;
  uint8_t *bytes = file_read(path, &len);
  printf("%s\n", path);
  fflush(stdout);
  (void)LLVMFuzzerTestOneInput(bytes, len);
  free(bytes);
  file_count++;
}

static void run_directory(const char *path) {
  char name[PATH_BYTES_MAX];
  struct dirent **entries;
  int count = scandir(path, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    if (entries[i]->d_name[0] != '.') {
      snprintf(name, sizeof name, "%s/%s", path, entries[i]->d_name);
      run_file(name);
    }
    free(entries[i]);
  }
  if (count >= 0) free(entries);
}

static double cpu_seconds(void) {
  struct timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void time_file(const char *path) {
  size_t len;
  uint8_t *bytes = file_read(path, &len);
  /* Many runs at once: the clock of a process may tick in milliseconds only. */
  double begin = cpu_seconds(), spent = 0;
  unsigned runs = 0;
  fuzz_timing = true;
  while (runs < RUNS_MAX && spent < RUN_SECONDS_MIN) {
    (void)LLVMFuzzerTestOneInput(bytes, len);
    runs++;
    spent = cpu_seconds() - begin;
  }
  printf("%.6f\n", spent / runs);
  free(bytes);
}

int main(int argc, char **argv) {
  if (argc == 3 && strcmp(argv[1], "--time") == 0) {
    time_file(argv[2]);
    return 0;
  }
  for (int i = 1; i < argc; i++) {
    struct stat st;
    if (stat(argv[i], &st) != 0) {
      fprintf(stderr, "%s: %s\n", argv[i], strerror(errno));
      return 1;
    }
    if (S_ISDIR(st.st_mode))
      run_directory(argv[i]);
    else
      run_file(argv[i]);
  }
  printf("%u files\n", file_count);
  return file_count ? 0 : 1;
}
