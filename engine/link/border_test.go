package link

import (
	"context"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/timestamppb"

	agentv1 "github.com/bulkhead-project/bulkhead/api/agent/v1"
	"github.com/bulkhead-project/bulkhead/api/card"
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
	return &shimv1.StatsResponse{Stats: []byte(l.text)}, nil
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
			for _, got := range []*timestamppb.Timestamp{c.CreatedAt, c.StartedAt, c.ExitedAt} {
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

// TestStats checks that a guest's statistics are printable and within bounds.
func TestStats(t *testing.T) {
	const n = 1 << 63
	huge := agentv1.NetUsage{Name: "\x1b" + strings.Repeat("n", 1000), RxBytes: n, RxErrors: n, TxBytes: n, TxErrors: n}
	volume := agentv1.VolumeUsage{Name: huge.Name, Used: n, Inodes: n, Capacity: n, Available: n}
	raw, err := json.Marshal(agentv1.PodStats{
		Memory: agentv1.Memory{Total: -1, Available: math.MaxInt64},
		Usage: agentv1.Usage{
			Network: &huge, Cards: slices.Repeat([]agentv1.NetUsage{huge}, 100), Disk: agentv1.DiskUsage{ReadBytes: n, WriteBytes: n},
			Volumes: slices.Repeat([]agentv1.VolumeUsage{volume}, 2*agentv1.MaxVolumes),
		},
		Containers: map[string]agentv1.Stats{"c": {
			At: time.Now().Add(2 * maxAhead), CPUUsec: n, MemoryBytes: n, MemoryLimit: n, WorkingSet: n, RSS: n, PageFaults: n,
			MajPageFaults: n, Pids: n, RootfsBytes: n, RootfsInodes: n,
		}, "old": {At: time.Unix(-1, 0)}},
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := (&Conn{Ext: liar{text: string(raw)}}).Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	const most = MaxCounter
	name := "?" + strings.Repeat("n", maxName-1)
	inside := agentv1.NetUsage{Name: name, RxBytes: most, RxErrors: most, TxBytes: most, TxErrors: most}
	at, old := got.Containers["c"].At, got.Containers["old"].At
	want := agentv1.PodStats{
		Memory: agentv1.Memory{Available: most},
		Usage: agentv1.Usage{
			Network: &inside, Cards: slices.Repeat([]agentv1.NetUsage{inside}, card.Most),
			Disk: agentv1.DiskUsage{ReadBytes: most, WriteBytes: most},
			Volumes: slices.Repeat([]agentv1.VolumeUsage{
				{Name: name, Used: most, Inodes: most, Capacity: most, Available: most},
			}, agentv1.MaxVolumes),
		},
		Containers: map[string]agentv1.Stats{"c": {
			At: at, CPUUsec: most / 1000, MemoryBytes: most, MemoryLimit: most, WorkingSet: most, RSS: most, PageFaults: most,
			MajPageFaults: most, Pids: MaxPids, RootfsBytes: most, RootfsInodes: most,
		}, "old": {At: old}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if time.Until(at) > time.Second || time.Since(old) > time.Minute {
		t.Errorf("the times are %v and %v", at, old)
	}
	for _, text := range []string{"", "{", `{"containers": 7}`, `{"disk": {"readBytes": -1}}`} {
		if _, err := (&Conn{Ext: liar{text: text}}).Stats(t.Context()); err == nil {
			t.Errorf("%q: got nil, want an error", text)
		}
	}
}
