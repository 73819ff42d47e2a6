package agentv1

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/bulkhead-project/bulkhead/internal/timeline"
)

// Client calls an agent. Its methods are safe for concurrent use; each opens its own stream. A refusal by the agent
// is an *Error that matches its class. If the context ends first, the error matches the context's.
type Client struct {
	open func(context.Context) (net.Conn, error)
}

// NewClient returns a client that opens its streams by open. A stream's Close must end pending reads and writes.
func NewClient(open func(ctx context.Context) (net.Conn, error)) *Client {
	return &Client{open: open}
}

// startCall opens a stream, makes the call and reads its answer. The stream is closed when the context ends, until the
// caller calls stop.
func (c *Client) startCall(ctx context.Context, op Op, body, answer any) (conn net.Conn, stop func() bool, err error) {
	conn, err = c.open(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("agent %s: %w", op, err)
	}
	opened := conn // conn is nil after a failure, while the context may still end
	stop = context.AfterFunc(ctx, func() { opened.Close() })
	if err := exchange(conn, op, body, answer, timeline.From(ctx)); err != nil {
		stop()
		conn.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, fmt.Errorf("agent %s: %w", op, err)
	}
	return conn, stop, nil
}

func exchange(conn net.Conn, op Op, body, answer any, asks *timeline.Recorder) error {
	call := Call{Op: op, Trace: asks != nil}
	began := time.Now()
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("encode: %w", err)
		}
		call.Body = raw
	}
	if err := WriteFrame(conn, call, MaxCall); err != nil {
		return err
	}
	var reply Reply
	if err := ReadFrame(conn, &reply, MaxReply); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return fmt.Errorf("read reply: %w", err)
	}
	if asks != nil {
		asks.Add(step(op, began, reply.Parts)...)
	}
	if reply.Error != nil {
		return reply.Error.bounded()
	}
	if answer == nil {
		return nil
	}
	if err := json.Unmarshal(reply.Body, answer); err != nil {
		return errors.New("decode reply: " + quote(err))
	}
	return nil
}

func (c *Client) call(ctx context.Context, op Op, body, answer any) error {
	conn, stop, err := c.startCall(ctx, op, body, answer)
	if err != nil {
		return err
	}
	stop()
	conn.Close()
	return nil
}

func ask[T any](ctx context.Context, c *Client, op Op, body any) (T, error) {
	var answer T
	err := c.call(ctx, op, body, &answer)
	return answer, err
}

// Configure gives the VM its identity; see type Configure.
func (c *Client) Configure(ctx context.Context, r Configure) (Configured, error) {
	return ask[Configured](ctx, c, OpConfigure, r)
}

// SetTime sets the guest's clock.
func (c *Client) SetTime(ctx context.Context, r SetTime) error {
	return c.call(ctx, OpSetTime, r, nil)
}

// AdjustTime corrects the guest's clock.
func (c *Client) AdjustTime(ctx context.Context, r AdjustTime) error {
	return c.call(ctx, OpAdjust, r, nil)
}

// Ping asks for nothing but an answer.
func (c *Client) Ping(ctx context.Context) (Pong, error) { return ask[Pong](ctx, c, OpPing, nil) }

// Memory returns the guest's view of its memory.
func (c *Client) Memory(ctx context.Context) (Memory, error) {
	return ask[Memory](ctx, c, OpMemory, nil)
}

// Mount mounts the disk in a slot. It succeeds if the same disk is already mounted under that name.
func (c *Client) Mount(ctx context.Context, r Mount) error { return c.call(ctx, OpMount, r, nil) }

// Grow grows a volume's file system to the size of its disk.
func (c *Client) Grow(ctx context.Context, r Grow) error {
	return c.call(ctx, OpGrow, r, nil)
}

// Unmount undoes Mount. It succeeds for a name that is not mounted.
func (c *Client) Unmount(ctx context.Context, r Unmount) error {
	return c.call(ctx, OpUnmount, r, nil)
}

// Flush writes the guest's file systems to its disks.
func (c *Client) Flush(ctx context.Context) error { return c.call(ctx, OpFlush, nil, nil) }

// Create creates a container, which waits for Start.
func (c *Client) Create(ctx context.Context, r Create) (Created, error) {
	return ask[Created](ctx, c, OpCreate, r)
}

// Start starts a created container; Exec of r must be empty.
func (c *Client) Start(ctx context.Context, r Process) error { return c.call(ctx, OpStart, r, nil) }

// Exec runs an additional process in a container.
func (c *Client) Exec(ctx context.Context, r Exec) (Created, error) {
	return ask[Created](ctx, c, OpExec, r)
}

// Signal sends a signal. It fails with errdefs.ErrNotFound if the process has ended.
func (c *Client) Signal(ctx context.Context, r Signal) error { return c.call(ctx, OpSignal, r, nil) }

// Wait returns when the process has ended.
func (c *Client) Wait(ctx context.Context, r Process) (Exit, error) {
	return ask[Exit](ctx, c, OpWait, r)
}

// SetNetwork replaces the pod's interfaces.
func (c *Client) SetNetwork(ctx context.Context, r SetNetwork) error {
	return c.call(ctx, OpNetwork, r, nil)
}

// Listening waits until the listening ports differ from known, and returns them.
func (c *Client) Listening(ctx context.Context, known Listening) (Listening, error) {
	return ask[Listening](ctx, c, OpListening, known)
}

// Delete deletes a process that has ended or was never started. It fails with ErrBusy while the process runs.
func (c *Client) Delete(ctx context.Context, r Process) (Exit, error) {
	return ask[Exit](ctx, c, OpDelete, r)
}

// Resize sets the size of a process's terminal.
func (c *Client) Resize(ctx context.Context, r Resize) error { return c.call(ctx, OpResize, r, nil) }

// NoReader closes an output of a process. It succeeds for a closed one.
func (c *Client) NoReader(ctx context.Context, r NoReader) error {
	return c.call(ctx, OpNoReader, r, nil)
}

// Pause freezes a container; Resume thaws it.
func (c *Client) Pause(ctx context.Context, r Process) error { return c.call(ctx, OpPause, r, nil) }

// Resume thaws a container.
func (c *Client) Resume(ctx context.Context, r Process) error { return c.call(ctx, OpResume, r, nil) }

// Update changes a container's limits.
func (c *Client) Update(ctx context.Context, r Update) error { return c.call(ctx, OpUpdate, r, nil) }

// Stats reads a container's usage.
func (c *Client) Stats(ctx context.Context, r Process) (Stats, error) {
	return ask[Stats](ctx, c, OpStats, r)
}

// Usage reads the pod's counters.
func (c *Client) Usage(ctx context.Context) (Usage, error) { return ask[Usage](ctx, c, OpUsage, nil) }

// Pids lists the processes of a container.
func (c *Client) Pids(ctx context.Context, r Process) (Pids, error) {
	return ask[Pids](ctx, c, OpPids, r)
}

// List returns all processes that the agent knows.
func (c *Client) List(ctx context.Context) (List, error) { return ask[List](ctx, c, OpList, nil) }

// OOMKills waits until the counts differ from known, and returns them.
func (c *Client) OOMKills(ctx context.Context, known OOMKills) (OOMKills, error) {
	return ask[OOMKills](ctx, c, OpOOMKills, known)
}

// ReadFile reads the end of a file in a container.
func (c *Client) ReadFile(ctx context.Context, r ReadFile) (File, error) {
	return ask[File](ctx, c, OpReadFile, r)
}

// Files writes the files of a volume.
func (c *Client) Files(ctx context.Context, r Files) (FilesState, error) {
	return ask[FilesState](ctx, c, OpFiles, r)
}
