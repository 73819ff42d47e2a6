package hub

import (
	"errors"
	"testing"
)

func TestHub(t *testing.T) {
	var h Hub[int]
	h.Publish(func() int { t.Error("an event without a subscriber"); return 0 })
	quick, err := h.Subscribe(3)
	if err != nil {
		t.Fatal(err)
	}
	slow, err := h.Subscribe(1)
	if err != nil {
		t.Fatal(err)
	}
	left, err := h.Subscribe(1)
	if err != nil {
		t.Fatal(err)
	}
	left.Close()
	left.Close()
	for i := range 3 {
		h.Publish(func() int { return i })
	}
	h.Close()
	for _, test := range []struct {
		name string
		sub  *Subscription[int]
		want int
		err  error
	}{
		{name: "quick", sub: quick, want: 3, err: ErrClosed},
		{name: "slow", sub: slow, want: 1, err: ErrBehind},
		{name: "left", sub: left, want: 0, err: ErrClosed},
	} {
		n := 0
		for i := range test.sub.Events() {
			if i != n {
				t.Errorf("%s: event %d, want %d", test.name, i, n)
			}
			n++
		}
		if n != test.want || !errors.Is(test.sub.Err(), test.err) {
			t.Errorf("%s: %d events, %v", test.name, n, test.sub.Err())
		}
	}
	if _, err := h.Subscribe(1); !errors.Is(err, ErrClosed) {
		t.Errorf("subscribed to a closed hub: %v", err)
	}
}
