package link

import (
	"context"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
	"github.com/bulkhead-project/bulkhead/internal/printable"
)

// Bounds for the answers of a shim, which is as untrusted as the guest that it serves.
const (
	maxText   = 1 << 10 // bytes of a text
	maxPhases = 64
	maxGroups = 1 << 10        // of a user
	maxAhead  = 24 * time.Hour // of a time, from now
)

// border checks a shim's answers: texts become printable and short, and times plausible. Numbers need no check.
type border struct{ shimv1.ExtensionClient }

func (b border) Status(ctx context.Context, r *shimv1.StatusRequest) (*shimv1.StatusResponse, error) {
	res, err := b.ExtensionClient.Status(ctx, r)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	res.State, res.Accel, res.ExitReason = line(res.State), line(res.Accel), line(res.ExitReason)
	res.Phases = res.Phases[:min(len(res.Phases), maxPhases)]
	for _, phase := range res.Phases {
		phase.Name = line(phase.Name)
	}
	for _, c := range res.Containers {
		c.State, c.Reason, c.Message = line(c.State), line(c.Reason), text(c.Message)
		c.CreatedAt, c.StartedAt, c.ExitedAt = when(c.CreatedAt, now), when(c.StartedAt, now), when(c.ExitedAt, now)
		if c.User != nil {
			c.User.Groups = c.User.Groups[:min(len(c.User.Groups), maxGroups)]
		}
	}
	return res, nil
}

// text returns at most maxText bytes without control characters, except for new lines and tabs. word is one line of
// it.
func text(s string) string {
	return printable.Text(s[:min(len(s), maxText)])
}

func line(s string) string { return strings.NewReplacer("\n", " ", "\t", " ").Replace(text(s)) }

// when returns a plausible time: not before 1970, which every format can represent, and not far ahead of now. Nil
// stays nil.
func when(t *timestamppb.Timestamp, now time.Time) *timestamppb.Timestamp {
	if t == nil {
		return nil
	}
	if at := t.AsTime(); t.CheckValid() != nil || at.Unix() < 0 || at.After(now.Add(maxAhead)) {
		return timestamppb.New(now)
	}
	return t
}
