package listening

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

const heads = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"

func TestRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	v4, v6 := filepath.Join(dir, "tcp"), filepath.Join(dir, "tcp6")
	write(t, v4, heads+
		"   0: 0100007F:1F90 00000000:0000 0A 0\n"+ // 127.0.0.1:8080
		"   1: 00000000:0016 00000000:0000 0A 0\n"+ // 0.0.0.0:22
		"   2: 0F02000A:01BB 00000000:0000 0A 0\n"+ // 10.0.2.15:443
		"   3: 0100007F:0050 0100007F:9C40 01 0\n"+ // established
		"   4: 00000000:0050 0100007F:9C40 06 0\n")
	write(t, v6, heads+
		"   0: 00000000000000000000000001000000:2382 00000000000000000000000000000000:0000 0A 0\n"+ // [::1]:9090
		"   1: 0000000000000000FFFF00000100007F:2383 00000000000000000000000000000000:0000 0A 0\n"+
		"   2: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0\n") // [::]:8080
	udp, ephemeral := filepath.Join(dir, "udp"), filepath.Join(dir, "range")
	write(t, udp, heads+
		"  12: 00000000:0035 00000000:0000 07 0\n"+ // 0.0.0.0:53
		"  13: 0100007F:0043 00000000:0000 07 0\n"+ // 127.0.0.1:67
		"  14: 0100007F:0044 0100007F:0035 01 0\n"+ // a client
		"  15: 00000000:8000 00000000:0000 07 0\n"+ // an automatic port, like a client's
		"  16: 00000000:7FFF 00000000:0000 07 0\n")
	write(t, ephemeral, "32768\t60999\n")
	all := tables{tcp: []string{v4, filepath.Join(dir, "none"), v6}, udp: []string{udp}, ephemeral: ephemeral}
	got, err := all.read()
	want := []agentv1.ListeningPort{
		{Port: 22}, {Port: 443}, {Port: 8080}, {Port: 9090, Loopback: true}, {Port: 9091, Loopback: true},
		{Port: 53, Datagrams: true}, {Port: 67, Loopback: true, Datagrams: true}, {Port: 0x7fff, Datagrams: true},
	}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v", got, err)
	}
	write(t, v4, heads+"   0: 0100007F:1F90F 00000000:0000 0A 0\n")
	if _, err := all.read(); err == nil {
		t.Error("a port of five digits")
	}
	all.tcp, all.ephemeral = nil, v4
	if _, err := all.read(); err == nil {
		t.Error("an invalid range")
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestFollow: a waiter reads the tables again after an event, even if the socket appears in them later.
func TestFollow(t *testing.T) {
	t.Parallel()
	r, events, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	w := Watch{changed: make(chan struct{})}
	first, err := w.next()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); w.wakeAfterEvents(r) }()
	if _, err := events.WriteString("an event\n"); err != nil {
		t.Fatal(err)
	}
	<-first
	for range len(delays) - 1 {
		next, err := w.next()
		if err != nil {
			t.Fatal(err)
		}
		<-next
	}
	events.Close()
	<-done
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	all, err := kernel.read()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Wait(ctx, all); err == nil {
		t.Log("the ports of this host have changed meanwhile")
	}
}
