// Package queue runs work for the keys of a work queue.
package queue

import (
	"context"
	"sync"
	"time"

	"k8s.io/client-go/util/workqueue"
)

// Queue holds keys. It may be filled before Run.
type Queue[K comparable] struct {
	workqueue.TypedRateLimitingInterface[K]
}

// New returns a queue. The pauses between retries of a key grow from first to last.
func New[K comparable](first, last time.Duration) Queue[K] {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[K](first, last)
	return Queue[K]{workqueue.NewTypedRateLimitingQueue(limiter)}
}

// Run calls work for each key, with some workers, until ctx ends and all calls have returned. A key is retried after an
// error, which is passed to failed.
func (q Queue[K]) Run(ctx context.Context, workers int, work func(context.Context, K) error, failed func(K, error)) {
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for key, over := q.Get(); !over && ctx.Err() == nil; key, over = q.Get() {
				if err := work(ctx, key); err == nil {
					q.Forget(key)
				} else {
					if ctx.Err() == nil {
						failed(key, err)
					}
					q.AddRateLimited(key)
				}
				q.Done(key)
			}
		})
	}
	<-ctx.Done()
	q.ShutDown()
	all.Wait()
}
