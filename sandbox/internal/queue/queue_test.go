package queue

import (
	"context"
	"testing"
)

func TestDeliver(t *testing.T) {
	t.Parallel()
	q := New[int]()
	for i := range 10 {
		q.Put(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var got []int
	q.Deliver(ctx, func(i int) {
		got = append(got, i)
		switch i {
		case 9:
			q.Put(10) // a handler may put more
		case 10:
			q.Put(11)
			cancel() // the rest is still delivered
		}
	})
	for i, n := range got {
		if n != i {
			t.Fatalf("out of order: %v", got)
		}
	}
	if len(got) != 12 {
		t.Errorf("%v", got)
	}
}
