/* env_uv_main_test.c: CPU lanes, mailbox and env_uv between threads; runs under TSan. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "storage/net/env_uv.h"

#define CHECK(cond)                                                      \
  do {                                                                   \
    if (!(cond)) {                                                       \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
      exit(1);                                                           \
    }                                                                    \
  } while (0)

enum { POSTERS = 4, MAILS = 5000, LOOPS = 2, WORKS = 400 };

struct letter {
  struct mail mail;
  unsigned poster, number;
};

struct post_office {
  struct mailbox *box;
  unsigned next[POSTERS + 1], total, echoes;
};
static struct post_office office;

static void letter_deliver(struct mail *m) {
  struct letter *l = container_of(m, struct letter, mail);
  CHECK(office.next[l->poster] == l->number); /* in order, none lost */
  office.next[l->poster]++;
  office.total++;
  if (l->poster < POSTERS && l->number % 16 == 0) { /* a delivery may post again */
    l->poster = POSTERS;
    l->number = office.echoes++;
    mailbox_post(office.box, m);
    return;
  }
  free(l);
}

static void *poster_main(void *arg) {
  unsigned poster = (unsigned)(uintptr_t)arg;
  for (unsigned i = 0; i < MAILS; i++) {
    struct letter *l = calloc(1, sizeof *l);
    CHECK(l);
    *l = (struct letter){.mail.deliver = letter_deliver, .poster = poster, .number = i};
    mailbox_post(office.box, &l->mail);
  }
  return NULL;
}

static void test_mailbox_order(void) {
  uv_loop_t loop;
  CHECK(uv_loop_init(&loop) == 0);
  CHECK(mailbox_open(&loop, &office.box) == 0);
  pthread_t threads[POSTERS];
  for (uintptr_t i = 0; i < POSTERS; i++)
    CHECK(pthread_create(&threads[i], NULL, poster_main, (void *)i) == 0);
  unsigned echoes = POSTERS * DIV_UP(MAILS, 16);
  while (office.total < POSTERS * MAILS + echoes) uv_run(&loop, UV_RUN_ONCE);
  mailbox_close(office.box);
  uv_run(&loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&loop) == 0);
  for (unsigned i = 0; i < POSTERS; i++) CHECK(pthread_join(threads[i], NULL) == 0);
  CHECK(office.echoes == echoes);
  printf("ok mailbox: %u mails of %d threads in order\n", office.total, POSTERS);
}

/* The receiver closes as soon as the last mail is there: the poster may still be in mailbox_post.
 */
struct last {
  struct mail mail;
  struct mailbox *box;
};
static void last_deliver(struct mail *m) {
  mailbox_close(container_of(m, struct last, mail)->box);
}
static void *last_main(void *arg) {
  struct last *l = arg;
  mailbox_post(l->box, &l->mail);
  return NULL;
}

static void test_mailbox_close_at_once(void) {
  for (int i = 0; i < 300; i++) {
    uv_loop_t loop;
    CHECK(uv_loop_init(&loop) == 0);
    struct last l = {.mail.deliver = last_deliver};
    CHECK(mailbox_open(&loop, &l.box) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, last_main, &l) == 0);
    uv_run(&loop, UV_RUN_DEFAULT);
    CHECK(uv_loop_close(&loop) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
  }
  printf("ok mailbox: closed on the last delivery\n");
}

/* Works on lanes of several loops: each runs once, off the loop, done on its own loop. */
struct job {
  struct env_work work;
  struct loop_run *run;
  uint8_t bytes[64];
  pthread_t ran_on;
  unsigned chain;
};

struct loop_run {
  struct cpu_lanes *lanes;
  struct env_uv *uv;
  pthread_t self;
  unsigned done;
};

static void job_run(struct env_work *w) {
  struct job *j = container_of(w, struct job, work);
  j->ran_on = pthread_self();
  for (unsigned i = 0; i < sizeof j->bytes; i++) j->bytes[i]++; /* TSan sees a missing hand-over */
}

static void job_done(struct env_work *w) {
  struct job *j = container_of(w, struct job, work);
  CHECK(pthread_equal(pthread_self(), j->run->self));
  CHECK(pthread_equal(j->ran_on, j->run->self) == (w->cost_bytes <= ENV_INLINE_WORK_BYTES));
  if (++j->chain < 5) {
    CHECK(j->bytes[0] == j->chain);
    w->cost_bytes = j->chain % 2 ? 100 : 1 << 20;
    env_work(env_uv_env(j->run->uv), w);
    return;
  }
  j->run->done++;
}

static void *loop_main(void *arg) {
  struct loop_run *run = arg;
  run->self = pthread_self();
  uv_loop_t loop;
  CHECK(uv_loop_init(&loop) == 0);
  CHECK(env_uv_open(&loop, run->lanes, 1 << 20, &run->uv) == 0);
  struct job *jobs = calloc(WORKS, sizeof *jobs);
  CHECK(jobs);
  for (unsigned i = 0; i < WORKS; i++) {
    jobs[i].run = run;
    jobs[i].work = (struct env_work){.run = job_run, .done = job_done, .cost_bytes = 1 << 20};
    env_work(env_uv_env(run->uv), &jobs[i].work);
  }
  while (run->done < WORKS) uv_run(&loop, UV_RUN_ONCE);
  struct env_uv_stats stats;
  env_uv_stats_get(run->uv, &stats);
  CHECK(stats.works_lane == WORKS * 3 && stats.works_loop == WORKS * 2);
  env_uv_close(run->uv);
  uv_run(&loop, UV_RUN_DEFAULT);
  CHECK(uv_loop_close(&loop) == 0);
  free(jobs);
  return NULL;
}

static void test_works(void) {
  struct cpu_lanes *lanes;
  CHECK(cpu_lanes_start(3, &lanes) == 0);
  struct loop_run runs[LOOPS];
  pthread_t threads[LOOPS];
  memset(runs, 0, sizeof runs);
  for (int i = 0; i < LOOPS; i++) {
    runs[i].lanes = lanes;
    CHECK(pthread_create(&threads[i], NULL, loop_main, &runs[i]) == 0);
  }
  for (int i = 0; i < LOOPS; i++) {
    CHECK(pthread_join(threads[i], NULL) == 0);
    CHECK(runs[i].done == WORKS);
  }
  cpu_lanes_stop(lanes);
  printf("ok lanes: %d works of %d loops, 5 steps each\n", LOOPS * WORKS, LOOPS);
}

int main(void) {
  test_mailbox_order();
  test_mailbox_close_at_once();
  test_works();
  return 0;
}
