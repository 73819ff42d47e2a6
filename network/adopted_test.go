package network

import (
	"errors"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/internal/procid"
	"github.com/bulkhead-project/bulkhead/internal/tap"
)

// TestAdopted checks that a VM gets the tap of another process, and only a tap.
func TestAdopted(t *testing.T) {
	card, err := tap.Idle()
	if err != nil {
		t.Fatal(err)
	}
	defer card.Close()
	own, err := procid.Of(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	held := Held{Holder: own, FD: int(card.Fd())}
	a, err := Adopted{}.Attach(t.Context(), Request{ID: "pod", Tap: &held})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Tap.Close()
	one, errOne := card.Stat()
	other, errOther := a.Tap.Stat()
	if errOne != nil || errOther != nil || !os.SameFile(one, other) || tap.Check(a.Tap) != nil {
		t.Errorf("another tap: %v, %v, %v", a.Tap.Name(), errOne, errOther)
	}
	if a.Guest != nil || a.IPs != nil {
		t.Errorf("settings before the interfaces exist: %+v", a)
	}
	if again, err := (Adopted{}).Attach(t.Context(), Request{ID: "pod"}); err != nil || again.Tap != nil || again.Start == nil {
		t.Errorf("attach for another shim: got %+v, %v", again, err)
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	gone := own
	gone.Start++
	for name, tc := range map[string]struct {
		held Held
		want error
	}{
		"no tap":               {Held{own, int(null.Fd())}, tap.ErrNoTap},
		"no descriptor":        {Held{own, 1 << 20}, unix.EBADF},
		"a process that ended": {Held{gone, int(card.Fd())}, procid.ErrGone},
	} {
		if a, err := (Adopted{}).Attach(t.Context(), Request{ID: "pod", Tap: &tc.held}); !errors.Is(err, tc.want) || a.Tap != nil {
			t.Errorf("%s: got %v, want %v", name, err, tc.want)
		}
	}
}
