/* mailbox.c: items from any thread to one loop, in order: a list under a mutex and one uv_async.
 *
 * uv_async_send is called under the mutex, and mailbox_close takes it: a poster that has queued the
 * last item may still be inside mailbox_post when the loop delivers that item and closes. */
#include <pthread.h>
#include <stdlib.h>

#include "storage/net/env_uv.h"

/* Deliveries that post again are served in the same turn, but only this often: the loop's sockets
 * wait meanwhile. */
#define MAILBOX_ROUNDS_MAX 8

struct mailbox {
  uv_async_t async;
  pthread_mutex_t lock;
  struct list queue;
};

static bool mailbox_round(struct mailbox *box) {
  struct list batch;
  list_init(&batch);
  pthread_mutex_lock(&box->lock);
  list_splice_back(&batch, &box->queue);
  pthread_mutex_unlock(&box->lock);
  if (list_empty(&batch)) return false;
  for (struct list *l; (l = list_pop_front(&batch));) {
    struct mail *m = container_of(l, struct mail, link);
    m->deliver(m);
  }
  return true;
}

static void mailbox_wake(uv_async_t *async) {
  struct mailbox *box = container_of(async, struct mailbox, async);
  for (int i = 0; i < MAILBOX_ROUNDS_MAX; i++) {
    /* A delivery may have closed the box: then it is empty, and freed only by the next turn. */
    if (!mailbox_round(box)) return;
  }
  if (!uv_is_closing((uv_handle_t *)async)) uv_async_send(async);
}

int mailbox_open(uv_loop_t *loop, struct mailbox **ret_box) {
  struct mailbox *box = calloc(1, sizeof *box);
  if (!box) return -ENOMEM;
  int err = uv_async_init(loop, &box->async, mailbox_wake);
  if (err < 0) {
    free(box);
    return err;
  }
  pthread_mutex_init(&box->lock, NULL);
  list_init(&box->queue);
  *ret_box = box;
  return 0;
}

void mailbox_post(struct mailbox *box, struct mail *m) {
  pthread_mutex_lock(&box->lock);
  list_push_back(&box->queue, &m->link);
  uv_async_send(&box->async);
  pthread_mutex_unlock(&box->lock);
}

static void mailbox_closed(uv_handle_t *handle) {
  struct mailbox *box = container_of(handle, struct mailbox, async);
  pthread_mutex_destroy(&box->lock);
  free(box);
}

void mailbox_close(struct mailbox *box) {
  if (!box) return;
  pthread_mutex_lock(&box->lock);
  uv_close((uv_handle_t *)&box->async, mailbox_closed);
  pthread_mutex_unlock(&box->lock);
}
