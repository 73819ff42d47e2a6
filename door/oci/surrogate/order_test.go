package surrogate

import (
	"errors"
	"strings"
	"testing"
)

func TestOrder(t *testing.T) {
	want := Target{Dir: "/run/pod", Container: "c", Exec: "e", Terminal: true}
	message, err := Order(Attach, want.Fields()...)
	if err != nil {
		t.Fatal(err)
	}
	kind, rest, _ := strings.Cut(string(message), "\x00")
	got, err := parseTarget(strings.Split(rest, "\x00"))
	if kind != Attach || got != want || err != nil {
		t.Errorf("%q %+v, %v", kind, got, err)
	}
	for name, fields := range map[string][]string{"a zero byte": {"a\x00b"}, "too much": {strings.Repeat("a", maxOrder)}} {
		if _, err := Order(View, fields...); !errors.Is(err, ErrOrder) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := parseTarget([]string{"too few"}); !errors.Is(err, ErrOrder) {
		t.Errorf("too few fields: %v", err)
	}
}
