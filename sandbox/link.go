package sandbox

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
)

// link is the way to a machine's agent: the channel's session, and a new one
// when it ends although the machine lives. A guest that breaks its sessions
// again and again uses up the link.
type link struct {
	path   string
	resume bool // another host was connected before
	broken func(error)

	sem     chan struct{}
	session *channel.Session
	redials []time.Time
}

// A guest may break so many sessions within the window.
const (
	maxRedials   = 8
	redialWindow = time.Minute
)

var errLinkBroken = errors.New("the guest breaks the channel again and again")

func newLink(path string, resume bool, broken func(error)) *link {
	return &link{path: path, resume: resume, broken: broken, sem: make(chan struct{}, 1)}
}

// open opens a stream, on a new session if need be.
func (l *link) open(ctx context.Context) (net.Conn, error) {
	session, err := l.connect(ctx)
	if err != nil {
		return nil, err
	}
	return session.Open(ctx)
}

// connect returns the session that is in use.
func (l *link) connect(ctx context.Context) (*channel.Session, error) {
	select {
	case l.sem <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.sem }()
	if l.session != nil {
		select {
		case <-l.session.Done():
		default:
			return l.session, nil
		}
		if err := l.spend(); err != nil {
			return nil, err
		}
		l.session.Close()
		l.session, l.resume = nil, true
	}
	hello := channel.Hello{Version: agentv1.Version}
	session, err := channel.Dial(ctx, l.path, channel.Options{Hello: hello, Resume: l.resume})
	if err != nil {
		return nil, err
	}
	if v := session.Peer().Version; v != agentv1.Version && v != agentv1.Version-1 {
		session.Close()
		return nil, fmt.Errorf("the agent speaks version %d of the protocol, not %d: %w", v, agentv1.Version, agentv1.ErrUnsupported)
	}
	l.session = session
	return session, nil
}

// spend counts one more session that was broken.
func (l *link) spend() error {
	t := time.Now()
	for len(l.redials) > 0 && t.Sub(l.redials[0]) > redialWindow {
		l.redials = l.redials[1:]
	}
	if len(l.redials) == maxRedials {
		err := fmt.Errorf("%w: %w", errLinkBroken, l.session.Err())
		l.broken(err)
		return err
	}
	l.redials = append(l.redials, t)
	return nil
}

// close ends the session, if there is one. Nothing uses the link any more.
func (l *link) close() error {
	l.sem <- struct{}{}
	defer func() { <-l.sem }()
	if l.session == nil {
		return nil
	}
	return l.session.Close()
}
