// Package qmp is a client of the QEMU Machine Protocol (QMP) over a unix socket: commands, descriptors passed with
// them, and events. Everything from the other side is bounded and checked, because the guest may have taken over QEMU.
package qmp

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// maxInFlight bounds the commands that wait for their replies.
const maxInFlight = 64

// ErrClosed is returned by commands on a connection that has ended.
var ErrClosed = errors.New("monitor connection is closed")

// Client is one connection. It is safe for concurrent use. A client owns one goroutine, which ends with the connection;
// Close waits for it.
type Client struct {
	conn *net.UnixConn

	send sync.Mutex // orders whole requests on the wire
	fds  sync.Mutex // one descriptor in flight: QEMU keeps only the last one

	mu      sync.Mutex
	next    uint64
	pending map[uint64]chan message
	subs    map[*Subscription]struct{}
	err     error

	done chan struct{} // closed when the reader has ended
}

// New waits for the greeting of a connection and negotiates capabilities. It fails if ctx ends first. It owns the
// connection, even if it fails.
func New(ctx context.Context, conn *net.UnixConn) (*Client, error) {
	c := &Client{
		conn: conn, done: make(chan struct{}),
		pending: map[uint64]chan message{}, subs: map[*Subscription]struct{}{},
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.SetReadDeadline(time.Unix(1, 0)) })
	r := bufio.NewReaderSize(conn, 16<<10)
	m, err := readMessage(r)
	if err == nil && m.QMP == nil {
		err = fmt.Errorf("%w: no greeting", ErrProtocol)
	}
	if !stop() && err == nil {
		err = ctx.Err()
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("greet the monitor: %w", errors.Join(err, ctx.Err()))
	}
	go c.read(r)
	if err := c.Execute(ctx, "qmp_capabilities", nil, nil); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Execute runs a command and decodes its result into result, unless result is nil. A refusal is a *CommandError, an
// ended connection ErrClosed. If ctx ends, QEMU may still carry out the command.
func (c *Client) Execute(ctx context.Context, command string, args, result any) error {
	return c.execute(ctx, command, args, result, nil)
}

// ExecuteFile is like Execute and passes a descriptor, for getfd and add-fd. The caller keeps file.
func (c *Client) ExecuteFile(ctx context.Context, command string, args, result any, file *os.File) error {
	c.fds.Lock()
	defer c.fds.Unlock()
	return c.execute(ctx, command, args, result, file)
}

func (c *Client) execute(ctx context.Context, command string, args, result any, file *os.File) error {
	id, reply, err := c.register()
	if err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	defer c.forget(id)
	line, err := json.Marshal(request{Execute: command, Arguments: args, ID: id})
	if err != nil {
		return fmt.Errorf("%s: encode: %w", command, err)
	}
	if err := c.write(ctx, append(line, '\n'), file); err != nil {
		return fmt.Errorf("%s: %w", command, err)
	}
	select {
	case m := <-reply:
		return finish(command, m, result)
	case <-c.done:
		select { // the reply may have come just before the end
		case m := <-reply:
			return finish(command, m, result)
		default:
			return fmt.Errorf("%s: %w", command, c.Err())
		}
	case <-ctx.Done():
		return fmt.Errorf("%s: no answer: %w", command, ctx.Err())
	}
}

func finish(command string, m message, result any) error {
	if m.Error != nil {
		return &CommandError{Command: command, Class: m.Error.Class, Desc: m.Error.Desc}
	}
	if result == nil {
		return nil
	}
	if err := json.Unmarshal(m.Return, result); err != nil {
		return fmt.Errorf("%s: %w: %w", command, ErrProtocol, err)
	}
	return nil
}

// write sends one request whole. If a write fails, the stream ends in the middle of a message, so the connection is
// closed.
func (c *Client) write(ctx context.Context, line []byte, file *os.File) error {
	c.send.Lock()
	defer c.send.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	_ = c.conn.SetWriteDeadline(time.Time{})
	stop := context.AfterFunc(ctx, func() { _ = c.conn.SetWriteDeadline(time.Unix(1, 0)) })
	defer stop()
	var oob []byte
	if file != nil {
		oob = unix.UnixRights(int(file.Fd()))
	}
	n, _, err := c.conn.WriteMsgUnix(line, oob, nil)
	if err == nil && n < len(line) {
		_, err = c.conn.Write(line[n:])
	}
	if err != nil {
		c.fail(fmt.Errorf("%w: %w", ErrClosed, err))
		return fmt.Errorf("%w: %w", ErrClosed, errors.Join(err, ctx.Err()))
	}
	return nil
}

func (c *Client) register() (uint64, chan message, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, nil, c.err
	}
	if len(c.pending) >= maxInFlight {
		return 0, nil, fmt.Errorf("%d commands already wait for the monitor", maxInFlight)
	}
	c.next++
	reply := make(chan message, 1)
	c.pending[c.next] = reply
	return c.next, reply, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.pending, id)
}

func (c *Client) read(r *bufio.Reader) {
	defer close(c.done)
	for {
		m, err := readMessage(r)
		if err == nil {
			err = c.dispatch(m)
		}
		if err != nil {
			if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
				err = ErrClosed
			} else if !errors.Is(err, ErrProtocol) {
				err = fmt.Errorf("%w: %w", ErrClosed, err)
			}
			c.fail(err)
			return
		}
	}
}

func (c *Client) dispatch(m message) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.QMP != nil:
		return fmt.Errorf("%w: a second greeting", ErrProtocol)
	case m.Event != "":
		for s := range c.subs {
			s.offer(Event{m.Event, m.Data})
		}
		return nil
	case m.ID == nil:
		if m.Error != nil { // QEMU could not parse the request
			return fmt.Errorf("%w: %q", ErrProtocol, m.Error.Desc)
		}
		return fmt.Errorf("%w: a reply without id", ErrProtocol)
	case *m.ID == 0 || *m.ID > c.next:
		return fmt.Errorf("%w: a reply to command %d, never sent", ErrProtocol, *m.ID)
	}
	if reply, ok := c.pending[*m.ID]; ok {
		delete(c.pending, *m.ID) // a second reply of the same id is dropped
		reply <- m
	}
	return nil
}

// fail closes the connection; the first cause is kept.
func (c *Client) fail(err error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = err
	}
	c.mu.Unlock()
	c.conn.Close()
}

// Done is closed when the connection has ended. Err then returns the cause.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, nil while it is open.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close closes the connection and waits for its reader.
func (c *Client) Close() error {
	c.fail(ErrClosed)
	<-c.done
	return nil
}
