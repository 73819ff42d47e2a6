package link

import (
	"context"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/timestamppb"

	shimv1 "github.com/bulkhead-project/bulkhead/api/shim/v1"
)

// liar is a shim with arbitrary answers.
type liar struct {
	shimv1.ExtensionClient
	text string
	at   *timestamppb.Timestamp
}

func (l liar) Status(context.Context, *shimv1.StatusRequest) (*shimv1.StatusResponse, error) {
	res := &shimv1.StatusResponse{State: l.text, Accel: l.text, ExitReason: l.text}
	for range 1000 {
		res.Phases = append(res.Phases, &shimv1.Phase{Name: l.text})
	}
	res.Containers = []*shimv1.ContainerStatus{{
		State: l.text, Reason: l.text, Message: l.text, CreatedAt: l.at, StartedAt: l.at, ExitedAt: l.at,
		User: &shimv1.User{Groups: make([]uint32, 1<<16)},
	}}
	return res, nil
}

func (l liar) Stats(context.Context, *shimv1.StatsRequest) (*shimv1.StatsResponse, error) {
	return &shimv1.StatsResponse{Containers: []*shimv1.ContainerStats{{At: l.at}}}, nil
}

// TestBorder checks that a shim's answers are printable and within bounds.
func TestBorder(t *testing.T) {
	for _, hostile := range []string{"", "ok", "\x1b]0;owned\x07\x1b[2J", "\u009b31m", strings.Repeat("é", 4096), "a\nb\r\nc", "\xff\xfe"} {
		for _, at := range []*timestamppb.Timestamp{
			nil, {Seconds: math.MaxInt64}, {Seconds: math.MinInt64}, {Nanos: -1}, {Seconds: 253402300800}, {Seconds: -1}, timestamppb.Now(),
		} {
			b := border{liar{text: hostile, at: at}}
			res, err := b.Status(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			c := res.Containers[0]
			if len(res.Phases) > maxPhases || len(c.User.Groups) > maxGroups {
				t.Errorf("%d phases, %d groups", len(res.Phases), len(c.User.Groups))
			}
			for _, s := range []string{res.State, res.Accel, res.ExitReason, res.Phases[0].Name, c.State, c.Reason} {
				if len(s) > maxText+utf8.UTFMax || strings.ContainsAny(s, "\n\r\x1b\x07\u009b") || !utf8.ValidString(s) {
					t.Errorf("%.20q became %.40q", hostile, s)
				}
			}
			if strings.ContainsAny(c.Message, "\r\x1b\x07\u009b") {
				t.Errorf("%.20q became the message %.40q", hostile, c.Message)
			}
			stats, err := b.Stats(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			for _, got := range []*timestamppb.Timestamp{c.CreatedAt, c.StartedAt, c.ExitedAt, stats.Containers[0].At} {
				if (got == nil) != (at == nil) {
					t.Errorf("%v became %v", at, got)
				}
				if got == nil {
					continue
				}
				if _, err := json.Marshal(got.AsTime()); err != nil || got.AsTime().After(time.Now().Add(2*maxAhead)) || got.AsTime().Unix() < 0 {
					t.Errorf("%v became %v: %v", at, got, err)
				}
			}
		}
	}
	for _, at := range []time.Time{time.Unix(0, 0), time.Now().Add(maxAhead / 2)} { // the minimum, and a clock that is fast
		if got := when(timestamppb.New(at), time.Now()); !got.AsTime().Equal(at) {
			t.Errorf("%v became %v", at, got.AsTime())
		}
	}
	if res, err := (border{liar{text: "running", at: timestamppb.New(time.Unix(1e9, 5))}}).Status(t.Context(), nil); err != nil ||
		res.State != "running" || !res.Containers[0].StartedAt.AsTime().Equal(time.Unix(1e9, 5)) {
		t.Errorf("a valid answer became %v, %v", res, err)
	}
}
