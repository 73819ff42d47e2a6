package inside

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// timeout bounds a request.
const timeout = 10 * time.Second

// Client asks a process that runs Serve. Two clients of one pair must not use it at the same time.
type Client struct{ conn *os.File }

// NewClient returns a client for the second end of a pair. The caller closes it.
func NewClient(conn *os.File) (*Client, error) {
	// Its holder may use it with blocking calls.
	if err := unix.SetNonblock(int(conn.Fd()), true); err != nil {
		return nil, err
	}
	fd, err := unix.FcntlInt(conn.Fd(), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return &Client{os.NewFile(uintptr(fd), "namespace")}, nil
}

// Close closes the client's end.
func (c *Client) Close() error { return c.conn.Close() }

// Socket returns a new socket of the namespace. It has no address, and does not block. The caller closes it.
func (c *Client) Socket(ctx context.Context, kind Kind) (*os.File, error) {
	socket, err := c.ask(ctx, kind, "")
	if err == nil && socket == nil {
		err = errors.New("the answer has no socket")
	}
	if err != nil {
		return nil, fmt.Errorf("create a socket in the network namespace: %w", err)
	}
	return socket, nil
}

// Watch makes the process run a program whenever interfaces, addresses or routes of the namespace change, from now on.
// It replaces an earlier program. args begin with the program's path, and env is its whole environment.
func (c *Client) Watch(ctx context.Context, env, args []string) error {
	payload, err := encodeProgram(env, args)
	if err == nil {
		_, err = c.ask(ctx, watch, payload)
	}
	if err != nil {
		return fmt.Errorf("watch the network namespace: %w", err)
	}
	return nil
}

// ask sends a request and returns the file of its answer, which may be nil.
func (c *Client) ask(ctx context.Context, kind Kind, payload string) (*os.File, error) {
	deadline := time.Now().Add(timeout)
	if until, ok := ctx.Deadline(); ok && until.Before(deadline) {
		deadline = until
	}
	if err := c.conn.SetDeadline(deadline); err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { _ = c.conn.SetDeadline(time.Unix(1, 0)) })()
	var random [4]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, err
	}
	token := binary.BigEndian.Uint32(random[:])
	if _, err := c.conn.Write(encode(token, kind, payload)); err != nil {
		return nil, err
	}
	for {
		got, number, file, err := c.receive()
		if err != nil {
			return nil, err
		}
		if got == token && number == 0 {
			return file, nil
		}
		if file != nil {
			file.Close()
		}
		if got == token {
			return nil, number
		}
		// The answer belongs to a client that ended before.
	}
}

// receive returns the next answer.
func (c *Client) receive() (token uint32, number unix.Errno, file *os.File, err error) {
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return 0, 0, nil, err
	}
	buf, rights := make([]byte, replySize), make([]byte, unix.CmsgSpace(4))
	n, nr := 0, 0
	var received error
	err = raw.Read(func(fd uintptr) bool {
		n, nr, _, _, received = unix.Recvmsg(int(fd), buf, rights, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(received, unix.EAGAIN)
	})
	if err == nil {
		err = received
	}
	if err != nil {
		return 0, 0, nil, err
	}
	if messages, err := unix.ParseSocketControlMessage(rights[:nr]); err == nil && len(messages) == 1 {
		if fds, err := unix.ParseUnixRights(&messages[0]); err == nil && len(fds) == 1 {
			file = os.NewFile(uintptr(fds[0]), "socket of a namespace")
		}
	}
	if n != replySize {
		if file != nil {
			file.Close()
		}
		return 0, 0, nil, fmt.Errorf("an answer of %d bytes: must have %d", n, replySize)
	}
	return binary.BigEndian.Uint32(buf), unix.Errno(binary.BigEndian.Uint32(buf[4:])), file, nil
}
