package inside

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Serve answers clients in the network namespace of the process, until conn fails or is closed. Serve closes conn. The
// calling thread must have the file system with the programs of Client.Watch.
func Serve(conn *os.File) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	defer conn.Close()
	s := server{ctx: ctx, conn: conn, programs: make(chan program, 1)}
	buf := make([]byte, maxRequest)
	for {
		n, err := conn.Read(buf)
		if err != nil || n == 0 {
			return
		}
		if n < header {
			continue
		}
		if s.answer(buf[:4], Kind(buf[4]), string(buf[header:n])) != nil {
			return
		}
	}
}

type server struct {
	ctx      context.Context
	conn     *os.File
	watching bool
	programs chan program // the last one that was asked for
}

// answer answers a request. Its error is conn's.
func (s *server) answer(token []byte, kind Kind, payload string) error {
	socket := -1
	var err error
	if kind == watch {
		err = s.watch(payload)
	} else {
		socket, err = kind.open()
	}
	var rights []byte
	if socket >= 0 {
		defer unix.Close(socket)
		rights = unix.UnixRights(socket)
	}
	number := unix.Errno(0)
	if err != nil && !errors.As(err, &number) {
		number = unix.EIO
	}
	reply := binary.BigEndian.AppendUint32(append([]byte{}, token...), uint32(number))
	raw, err := s.conn.SyscallConn()
	if err != nil {
		return err
	}
	var sent error
	err = raw.Write(func(fd uintptr) bool {
		sent = unix.Sendmsg(int(fd), reply, rights, nil, unix.MSG_NOSIGNAL)
		return !errors.Is(sent, unix.EAGAIN)
	})
	if err == nil {
		err = sent
	}
	return err
}

// watch runs a program at each change from now on, in place of an earlier one.
func (s *server) watch(payload string) error {
	next, err := decodeProgram(payload)
	if err != nil {
		return err
	}
	select {
	case <-s.programs:
	default:
	}
	s.programs <- next
	if s.watching {
		return nil
	}
	socket, err := Listen()
	if err != nil {
		return err
	}
	s.watching = true
	changes := Changes(s.ctx, socket)
	go func() {
		var p program
		for {
			select {
			case p = <-s.programs:
			case _, more := <-changes:
				if !more {
					return
				}
				p.run()
			}
		}
	}()
	return nil
}

// run runs a program without streams, and waits for its end. The program reports its own errors.
func (p program) run() {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return
	}
	defer null.Close()
	pid, err := syscall.ForkExec(p.args[0], p.args, &syscall.ProcAttr{
		Dir: "/", Env: p.env, Files: []uintptr{null.Fd(), null.Fd(), null.Fd()},
	})
	if err != nil {
		return
	}
	var status syscall.WaitStatus
	for {
		if _, err := syscall.Wait4(pid, &status, 0, nil); !errors.Is(err, syscall.EINTR) {
			return
		}
	}
}
