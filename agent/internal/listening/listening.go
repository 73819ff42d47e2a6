// Package listening watches the ports that the guest's processes listen on.
package listening

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
)

// most bounds the reported ports per protocol: a process may listen on all of them.
const most = 256

// tables are the kernel's lists of sockets.
type tables struct {
	tcp, udp []string
	// ephemeral is the kernel's file with the range of automatically assigned ports.
	ephemeral string
}

var kernel = tables{
	tcp: []string{"/proc/net/tcp", "/proc/net/tcp6"}, udp: []string{"/proc/net/udp", "/proc/net/udp6"},
	ephemeral: "/proc/sys/net/ipv4/ip_local_port_range",
}

// Watch waits for changes. The zero value is ready and watches nothing before Wait is called. Its methods are safe for
// concurrent use.
type Watch struct {
	mu      sync.Mutex
	changed chan struct{} // closed with the next change; nil before the first call
}

// Wait waits until the ports differ from known, and returns them. known is an earlier result or empty.
func (w *Watch) Wait(ctx context.Context, known []agentv1.ListeningPort) ([]agentv1.ListeningPort, error) {
	for {
		changed, err := w.next()
		if err != nil {
			return nil, fmt.Errorf("watch the ports: %w", err)
		}
		ports, err := kernel.read()
		if err != nil || !slices.Equal(ports, known) {
			return ports, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// next returns a channel that is closed with the next change. The first call starts tracing in the kernel, for as long
// as it runs.
func (w *Watch) next() (chan struct{}, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.changed != nil {
		return w.changed, nil
	}
	events, err := trace()
	if err != nil {
		return nil, err
	}
	w.changed = make(chan struct{})
	go w.wakeAfterEvents(events)
	return w.changed, nil
}

// The kernel's event precedes the change of its socket tables.
var delays = []time.Duration{0, 10 * time.Millisecond, 200 * time.Millisecond}

// wakeAfterEvents wakes waiters after each event, so that they read the tables.
func (w *Watch) wakeAfterEvents(events io.Reader) {
	event := make(chan struct{}, 1)
	go func() {
		defer close(event)
		buf := make([]byte, 4096)
		for {
			if _, err := events.Read(buf); err != nil {
				return // only after a fault of the kernel
			}
			select {
			case event <- struct{}{}:
			default:
			}
		}
	}()
	for range event {
		for _, d := range delays {
			<-time.After(d) // there is no event for the table
			w.mu.Lock()
			close(w.changed)
			w.changed = make(chan struct{})
			w.mu.Unlock()
		}
	}
}

// dir is the mount point of the kernel's tracing. No container sees it.
const dir = "/run/bulkhead-tracing"

// listen is the state of a listening socket (TCP_LISTEN).
const listen = "10"

// trace makes the kernel write a line whenever a TCP socket starts or stops listening, and whenever a UDP socket is
// bound or closed.
func trace() (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	if err := unix.Mount("tracefs", dir, "tracefs", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, "mode=0700"); err != nil &&
		!errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("mount tracefs: %w", err)
	}
	for _, step := range [][2]string{
		// With an event, the kernel would also trace each switch of tasks for their names. To begin with that, it patches the
		// scheduler while it runs. An emulated processor that keeps the old code then traps for ever.
		{"options/record-cmd", "0"},
		{"kprobe_events", probes},
		{"events/sock/inet_sock_set_state/filter", "newstate==" + listen + "||oldstate==" + listen},
		{"events/sock/inet_sock_set_state/enable", "1"},
		{"events/bulkhead/udp_bind/filter", "port!=0"}, // 0 requests any port
		{"events/bulkhead/enable", "1"},
	} {
		if err := os.WriteFile(filepath.Join(dir, step[0]), []byte(step[1]), 0); err != nil {
			return nil, err
		}
	}
	return os.Open(filepath.Join(dir, "trace_pipe"))
}

// probes are kprobes for UDP, which has no events of its own: a socket that takes a port, and one that releases it.
const probes = "p:bulkhead/udp_bind udp_lib_get_port port=$arg2:u16\np:bulkhead/udp_close udp_lib_unhash\n"

// read returns the listening ports, sorted, TCP first. A UDP socket counts as listening if it is not connected and its
// port was chosen explicitly.
func (t tables) read() ([]agentv1.ListeningPort, error) {
	tcp, err := readAll(t.tcp, func(f []string) bool { return f[3] == "0A" })
	if err != nil {
		return nil, err
	}
	udp, err := readAll(t.udp, func(f []string) bool { return f[3] == "07" && strings.Trim(f[2], "0:") == "" })
	if err != nil {
		return nil, err
	}
	first, last, err := t.ephemeralRange()
	if err != nil {
		return nil, err
	}
	udp = slices.DeleteFunc(udp, func(p agentv1.ListeningPort) bool { return p.Port >= first && p.Port <= last })
	udp = udp[:min(len(udp), most)]
	for i := range udp {
		udp[i].Datagrams = true
	}
	return append(tcp[:min(len(tcp), most)], udp...), nil
}

// ephemeralRange returns the range of automatically assigned ports.
func (t tables) ephemeralRange() (first, last uint16, err error) {
	text, err := os.ReadFile(t.ephemeral)
	if err == nil {
		_, err = fmt.Sscan(string(text), &first, &last)
	}
	return first, last, err
}

// readAll reads the listening sockets' ports from tables, sorted. listens decides by a line's fields.
func readAll(tables []string, listens func(fields []string) bool) (ports []agentv1.ListeningPort, err error) {
	for _, name := range tables {
		f, err := os.Open(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // a kernel without IPv6
		}
		if err != nil {
			return nil, err
		}
		ports, err = parse(f, ports, listens)
		f.Close()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	// If a port occurs twice, the more reachable address counts.
	slices.SortFunc(ports, func(a, b agentv1.ListeningPort) int {
		return cmp.Or(cmp.Compare(a.Port, b.Port), compareBool(a.Loopback, b.Loopback))
	})
	return slices.CompactFunc(ports, func(a, b agentv1.ListeningPort) bool { return a.Port == b.Port }), nil
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}

// parse adds the ports of a table.
func parse(r io.Reader, ports []agentv1.ListeningPort, listens func([]string) bool) ([]agentv1.ListeningPort, error) {
	lines := bufio.NewScanner(r)
	lines.Scan() // the header
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) < 4 || !listens(f) {
			continue
		}
		address, port, _ := strings.Cut(f[1], ":")
		n, err := strconv.ParseUint(port, 16, 16)
		if err != nil {
			return nil, err
		}
		ports = append(ports, agentv1.ListeningPort{Port: uint16(n), Loopback: loopback(address)})
	}
	return ports, lines.Err()
}

// loopback parses an address in the kernel's form: words of four bytes in host byte order, which is little-endian.
func loopback(address string) bool {
	switch len(address) {
	case 8:
		return strings.HasSuffix(address, "7F")
	case 32:
		const v4 = "0000000000000000FFFF0000"
		return address == "00000000000000000000000001000000" || strings.HasPrefix(address, v4) && strings.HasSuffix(address, "7F")
	}
	return false
}
