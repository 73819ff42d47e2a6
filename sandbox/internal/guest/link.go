// Package guest connects a sandbox to the agent in its running VM (Live): it keeps the channel's session, the pauses between attempts
// after a cut, and the guest's clock.
package guest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/containerd/errdefs"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/channel"
	"github.com/bulkhead-project/bulkhead/hypervisor"
)

// Link is the connection to a VM's agent. It opens a new session of the channel when one ends although the VM lives. A
// guest that breaks too many sessions uses up the link.
type Link struct {
	dial     func(context.Context) (net.Conn, error)
	resume   bool // an earlier shim was connected before
	patience time.Duration
	broken   func(error)

	sem     chan struct{}
	session *channel.Session
	redials []time.Time
}

// MaxRedials is the number of sessions that a guest may break within the window.
const (
	MaxRedials   = 8
	redialWindow = time.Minute
)

var errLinkBroken = errors.New("the guest breaks the channel again and again")

// NewLink returns a link to the agent to which dial connects; it does not connect yet. resume tells that an earlier
// shim was connected before. patience is channel.Options.Patience. The link calls broken with the reason when it is
// used up: the guest broke too many sessions, or dial returned hypervisor.ErrSpent.
func NewLink(dial func(context.Context) (net.Conn, error), resume bool, patience time.Duration, broken func(error)) *Link {
	return &Link{dial: dial, resume: resume, patience: patience, broken: broken, sem: make(chan struct{}, 1)}
}

// Open opens a stream, on a new session if necessary.
func (l *Link) Open(ctx context.Context) (net.Conn, error) {
	session, err := l.Connect(ctx)
	if err != nil {
		return nil, err
	}
	return session.Open(ctx)
}

// Connect returns the current session, or a new one.
func (l *Link) Connect(ctx context.Context) (*channel.Session, error) {
	select {
	case l.sem <- struct{}{}:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer func() { <-l.sem }()
	if l.session != nil {
		if !l.session.Ended() {
			return l.session, nil
		}
		l.session.Close()
		if err := l.spend(); err != nil {
			return nil, err
		}
		l.session, l.resume = nil, true
	}
	hello := channel.Hello{Version: agentv1.Version}
	session, err := channel.Dial(ctx, l.dial, channel.Options{Hello: hello, Resume: l.resume, Patience: l.patience})
	if errors.Is(err, hypervisor.ErrSpent) {
		l.broken(err)
	}
	if err != nil {
		return nil, err
	}
	if v := session.Peer().Version; v != agentv1.Version && v != agentv1.Version-1 {
		session.Close()
		return nil, fmt.Errorf("the agent speaks version %d of the protocol, not %d: %w", v, agentv1.Version, errdefs.ErrNotImplemented)
	}
	l.session, l.patience = session, 0 // only a clone's first session needs patience
	return session, nil
}

// spend counts one more broken session.
func (l *Link) spend() error {
	t := time.Now()
	for len(l.redials) > 0 && t.Sub(l.redials[0]) > redialWindow {
		l.redials = l.redials[1:]
	}
	if len(l.redials) == MaxRedials {
		err := fmt.Errorf("%w: %w", errLinkBroken, l.session.Err())
		l.broken(err)
		return err
	}
	l.redials = append(l.redials, t)
	return nil
}

// Close ends the session, if there is one. The link must not be used afterwards.
func (l *Link) Close() error {
	l.sem <- struct{}{}
	defer func() { <-l.sem }()
	if l.session == nil {
		return nil
	}
	return l.session.Close()
}
