// Package fdpass passes open files between processes over unix sockets.
package fdpass

import (
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// MaxFiles bounds the files in one message. The kernel's own bound is 253.
const MaxFiles = 128

// Send writes data and the files in one message. data must not be empty.
func Send(conn *net.UnixConn, data []byte, files ...*os.File) error {
	if len(files) > MaxFiles {
		return fmt.Errorf("send %d files in one message: at most %d", len(files), MaxFiles)
	}
	var fds []int
	for _, f := range files {
		// SyscallConn rather than Fd, which would make f blocking.
		raw, err := f.SyscallConn()
		if err != nil {
			return fmt.Errorf("send %s: %w", f.Name(), err)
		}
		var dup int
		ctlErr := raw.Control(func(fd uintptr) { dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 3) })
		if ctlErr != nil || err != nil {
			closeAll(fds)
			return fmt.Errorf("send %s: %w", f.Name(), errorOf(ctlErr, err))
		}
		fds = append(fds, dup)
	}
	defer closeAll(fds)
	var rights []byte
	if len(fds) > 0 {
		rights = unix.UnixRights(fds...)
	}
	n, _, err := conn.WriteMsgUnix(data, rights, nil)
	if err != nil {
		return err
	}
	// A stream socket may write only a part; the files went with the first byte.
	if n < len(data) {
		_, err = conn.Write(data[n:])
	}
	return err
}

// Receive reads one message of at most len(buf) bytes with its files. The files are close-on-exec, and the caller
// closes them.
func Receive(conn *net.UnixConn, buf []byte) (int, []*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(MaxFiles*4))
	n, oobn, flags, _, err := conn.ReadMsgUnix(buf, oob)
	if err != nil {
		return 0, nil, err
	}
	files, err := parse(oob[:oobn])
	if err == nil && flags&unix.MSG_CTRUNC != 0 {
		err = fmt.Errorf("more than %d files in one message", MaxFiles)
	}
	if err != nil {
		CloseAll(files)
		return 0, nil, err
	}
	return n, files, nil
}

func parse(oob []byte) ([]*os.File, error) {
	if len(oob) == 0 {
		return nil, nil
	}
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil, fmt.Errorf("parse a control message: %w", err)
	}
	var files []*os.File
	for _, msg := range msgs {
		fds, err := unix.ParseUnixRights(&msg)
		if err != nil {
			continue // credentials or another kind, which carries no file
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("passed:%d", fd)))
		}
	}
	return files, nil
}

// CloseAll closes files and skips nil.
func CloseAll(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

func errorOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}
