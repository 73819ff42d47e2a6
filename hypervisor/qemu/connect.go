package qemu

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/bulkhead-project/bulkhead/hypervisor"
	"github.com/bulkhead-project/bulkhead/hypervisor/qemu/qmp"
)

// sockets are connections to a VM that have not been read yet. QEMU serves one connection of each kind; others wait in
// the socket's queue.
type sockets struct{ console, qmp, channel []net.Conn }

// open connects to the listening sockets, with the given number of connections to the channel.
func (v *vm) open(ctx context.Context, channels int) (s sockets, err error) {
	for _, want := range []struct {
		name  string
		count int
		conns *[]net.Conn
	}{{consoleSocket, 1, &s.console}, {qmpSocket, 1, &s.qmp}, {channelSocket, channels, &s.channel}} {
		for range want.count {
			conn, err := v.dial(ctx, want.name)
			if len(*want.conns) > 0 && errors.Is(err, unix.EAGAIN) {
				break // the queue of a QEMU that was started without confinement is short
			}
			if err != nil {
				s.close()
				return sockets{}, err
			}
			*want.conns = append(*want.conns, conn)
		}
	}
	return s, nil
}

// dial connects to one of the VM's sockets. A previous owner of the VM's user id may have planted links that lead to
// another socket of that user.
func (v *vm) dial(ctx context.Context, name string) (net.Conn, error) {
	path := filepath.Join(v.record.Dir, name)
	for at, want := range map[string]fs.FileMode{v.record.Dir: fs.ModeDir, path: fs.ModeSocket} {
		info, err := os.Lstat(at)
		if err != nil {
			return nil, err
		}
		if info.Mode().Type() != want {
			return nil, fmt.Errorf("connect to %s: %w: %s is a %v", path, errPlanted, at, info.Mode().Type())
		}
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", path)
}

var errPlanted = errors.New("not the VM's socket")

func (s sockets) close() {
	for _, conns := range [][]net.Conn{s.console, s.qmp, s.channel} {
		for _, conn := range conns {
			conn.Close()
		}
	}
}

// connect starts to talk to the process. It owns s.
func (v *vm) connect(ctx context.Context, s sockets, o hypervisor.Options) error {
	if o.Opened != nil {
		if err := o.Opened(v.record.Process); err != nil {
			s.close()
			return v.failed("connect", "open the VM's sockets", err)
		}
	}
	v.limited, v.channels = o.Connections > 0, s.channel
	v.console.follow(s.console[0])
	client, err := qmp.New(ctx, s.qmp[0].(*net.UnixConn))
	if err != nil {
		return v.failed("connect", "talk to QEMU", v.deathOr(err))
	}
	v.qmp = client
	v.watchEvents()
	return nil
}

// Connect implements hypervisor.VM.
func (v *vm) Connect(ctx context.Context) (net.Conn, error) {
	if !v.limited {
		return v.dial(ctx, channelSocket)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if len(v.channels) == 0 {
		return nil, fmt.Errorf("connect to the guest: %w", hypervisor.ErrSpent)
	}
	conn := v.channels[0]
	v.channels = v.channels[1:]
	return conn, nil
}
