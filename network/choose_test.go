package network

import (
	"cmp"
	"errors"
	"testing"

	"github.com/containerd/errdefs"
)

func TestChooseFree(t *testing.T) {
	wish := []Port{{PodPort: 80}, {HostPort: 8080, PodPort: 81}, {HostIP: "0.0.0.0", PodPort: 82}, {HostIP: "::1", PodPort: 83}, {PodPort: 84}}
	got, err := ChooseFree(wish)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int]bool{}
	for i, p := range got {
		if p.HostPort == 0 || seen[p.HostPort] {
			t.Errorf("port %d: %+v", i, p)
		}
		seen[p.HostPort] = true
		if want := cmp.Or(wish[i].HostIP, "127.0.0.1"); i != 1 && p.HostIP != want || p.PodPort != wish[i].PodPort {
			t.Errorf("port %d became %+v", i, p)
		}
	}
	if got[1] != wish[1] || wish[0].HostPort != 0 {
		t.Errorf("chosen %+v for %+v", got, wish)
	}
	l, err := Listen([]Port{got[0], got[2], got[3], got[4]}) // they are free again
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range l {
		if err := l.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := ChooseFree([]Port{{HostIP: "192.0.2.1", PodPort: 80}}); !errors.Is(err, errdefs.ErrFailedPrecondition) {
		t.Errorf("an address of another host: %v", err)
	}
}
