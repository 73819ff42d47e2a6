// Package client talks to the user's engine and starts it if none runs. It imports nothing of the engine, so that
// commands start within milliseconds.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/errdefs"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/fault"
	"github.com/bulkhead-project/bulkhead/internal/podsock"
)

// Socket is the path of the engine's socket.
func Socket(r dirs.Roots) string { return filepath.Join(r.Instance(Instance), "run.sock") }

// EngineSocket is the path of the socket that the same process serves to doors in other processes (api/engine/v1).
func EngineSocket(r dirs.Roots) string { return filepath.Join(r.Instance(Instance), "engine.sock") }

// Lock is the path of the lock that elects the engine. The engine holds it as long as it runs.
func Lock(r dirs.Roots) string { return filepath.Join(r.Instance(Instance), "run.lock") }

// Instance is the name of the instance of door/run and its engine.
const Instance = dirs.Run

// Client is a connection to an engine. It is safe for concurrent use.
type Client struct {
	http  *http.Client
	roots dirs.Roots
	start Starter
}

// Starter starts an engine and returns when the engine serves its socket.
type Starter func(ctx context.Context, r dirs.Roots) error

// New returns a client that calls start if no engine answers. A nil start starts none.
func New(r dirs.Roots, start Starter) *Client {
	dial := func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx, Socket(r)) }
	return &Client{&http.Client{Transport: &http.Transport{DialContext: dial}}, r, start}
}

// ErrForeign is matched by the error of a call if another user's process serves the socket. Without a runtime
// directory, the state lies in a world-writable directory, where another user may have created it first.
var ErrForeign = errors.New("another user's process serves the engine's socket")

// dial connects to an engine. The engine must run as the caller or as root.
func dial(ctx context.Context, path string) (net.Conn, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	peer, err := podsock.Peer(conn.(*net.UnixConn))
	if err == nil && peer.Uid != 0 && int(peer.Uid) != os.Geteuid() {
		err = fmt.Errorf("%w: user %d, at %s (set BULKHEAD_STATE to a directory of your own)", ErrForeign, peer.Uid, path)
	}
	if err == nil {
		err = ofNamespace(int(peer.Pid))
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// Call makes one call and decodes its answer into out, which may be nil. The caller must escape names in path
// (url.PathEscape).
func (c *Client) Call(ctx context.Context, method, path string, query url.Values, in, out any) error {
	resp, err := c.do(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if out == nil {
		_, err = io.Copy(io.Discard, resp.Body)
		return err
	}
	if err := json.NewDecoder(resp.Body).Decode(out); err != nil {
		return fmt.Errorf("read the engine's answer: %w", err)
	}
	return nil
}

// Stream makes one call and passes each message of the answer to each, until the stream ends. An error message ends
// it with that error.
func (c *Client) Stream(ctx context.Context, method, path string, query url.Values, in any, each func(api.Message) error) error {
	resp, err := c.do(ctx, method, path, query, in)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	dec := json.NewDecoder(resp.Body)
	for {
		var m api.Message
		if err := dec.Decode(&m); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return c.restartEngine(ctx, method, fmt.Errorf("the engine went away: %w", err))
		}
		if m.Error != nil {
			return m.Error
		}
		if err := each(m); err != nil {
			return err
		}
	}
}

// restartEngine returns the error of a stream that broke off. It first starts a new engine, which ends the work that
// the dead engine left, such as the pods of a foreground run. Nothing else might start one.
func (c *Client) restartEngine(ctx context.Context, method string, err error) error {
	if method == http.MethodGet || c.start == nil {
		return err
	}
	if failed := c.ensure(ctx); failed != nil {
		return fmt.Errorf("%w; what it left running cannot be ended: %w", err, failed)
	}
	return err
}

// do sends the request. If the engine ends before it has answered anything, do sends the request again to a new
// engine.
func (c *Client) do(ctx context.Context, method, path string, query url.Values, in any) (*http.Response, error) {
	// An empty element or dots would change the path, and the request would reach another resource.
	if p := path + "/"; strings.Contains(p, "//") || strings.Contains(p, "/./") || strings.Contains(p, "/../") {
		return nil, fmt.Errorf("%w: a name must not be empty or consist of dots", errdefs.ErrNotFound)
	}
	if err := c.checkState(); err != nil {
		return nil, err
	}
	var body []byte // nil without in: only then does the server notice at once when the client disconnects
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return nil, fmt.Errorf("encode the request: %w", err)
		}
	}
	fault.Point("cli.sending")
	resp, err := ensured(ctx, c, func() (*http.Response, error) { return c.send(ctx, method, path, query, body) })
	if err != nil {
		return nil, err
	}
	fault.Point("cli.answered")
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	e := &api.Error{}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(e); err != nil || e.Message == "" {
		return nil, fmt.Errorf("the engine answered %s", resp.Status)
	}
	return nil, e
}

// DialEngine connects to EngineSocket. It starts an engine if none runs.
func (c *Client) DialEngine(ctx context.Context) (net.Conn, error) {
	if err := c.checkState(); err != nil {
		return nil, err
	}
	conn, err := ensured(ctx, c, func() (net.Conn, error) { return dial(ctx, EngineSocket(c.roots)) })
	if err != nil {
		return nil, fmt.Errorf("connect to the engine: %w", err)
	}
	return conn, nil
}

// checkState refuses a state directory with a path that is too long for sockets.
func (c *Client) checkState() error {
	if len(c.roots.State) <= dirs.MaxState {
		return nil
	}
	return fmt.Errorf("the state directory %s has %d characters, but must have at most %d: "+
		"set BULKHEAD_STATE to a shorter path", c.roots.State, len(c.roots.State), dirs.MaxState)
}

// ensured makes a call. If no engine runs, it starts one and calls again.
func ensured[T any](ctx context.Context, c *Client, call func() (T, error)) (T, error) {
	answer, err := call()
	// The engine that answered ensure may itself be stopping.
	for tries := 0; err != nil && ctx.Err() == nil && c.start != nil && absent(err) && tries < 3; tries++ {
		if err = c.ensure(ctx); err == nil {
			answer, err = call()
		}
	}
	return answer, err
}

func (c *Client) send(ctx context.Context, method, path string, query url.Values, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, "http://engine"+path+"?"+query.Encode(), bytes.NewReader(body))
	if err != nil {
		return nil, fmt.Errorf("make the request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set(api.EnvironmentHeader, api.ReadEnvironment().Encode())
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the engine: %w", err)
	}
	return resp, nil
}
