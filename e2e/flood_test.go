package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/door/run/client"
	"github.com/bulkhead-project/bulkhead/internal/test/testdeadline"
	"github.com/bulkhead-project/bulkhead/internal/test/testturn"
	podlogs "github.com/bulkhead-project/bulkhead/pod/logs"
)

// TestFlood: a container writes as fast as it can. The host keeps a bounded part of the output, and a follower sees
// each line once, in order.
func TestFlood(t *testing.T) {
	testturn.SkipUnless(t, 1, 3)
	const most = 4 * podlogs.Bound // the log and the older one, each up to twice its bound
	w := newWorld(t)
	w.must(t, pod("flood", "Never", `awk 'BEGIN{s=sprintf("%900s","x"); for(i=1;;i++) print i s}'`), "run", "-d", "-q", "-")
	uid := w.find(t, "flood").UID
	ctx, cancel := context.WithTimeout(t.Context(), testdeadline.For(commandLimit))
	defer cancel()
	followed := make(chan error, 1)
	line := 0
	go func() {
		all := api.LogOptions{Follow: true, Tail: -1}.Query()
		followed <- client.New(w.roots(), nil).Stream(ctx, "GET", "/v1/pods/"+uid+"/logs", all, nil, func(m api.Message) error {
			if m.Log == nil {
				return nil
			}
			number, rest, _ := strings.Cut(string(m.Log.Data), " ")
			n, err := strconv.Atoi(number)
			// A slow follower misses whole logs, never parts of one.
			if err != nil || len(rest) != 900 || n != line+1 && n < line+1+10000 {
				return fmt.Errorf("after line %d comes %.40q", line, m.Log.Data)
			}
			line = n
			return nil
		})
	}()
	log := filepath.Join(w.roots().Data, "pods", uid, "logs/c/0.log")
	var last os.FileInfo
	for anew := 0; anew < 2 && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		now, err := os.Stat(log)
		if err != nil {
			continue // it is being rotated
		}
		older, err := os.Stat(podlogs.Older(log))
		if err != nil {
			continue
		}
		if now.Size()+older.Size() > most {
			t.Errorf("the logs are %d and %d bytes long", now.Size(), older.Size())
		}
		if last == nil || !os.SameFile(last, older) {
			anew, last = anew+1, older
		}
	}
	tail := strings.Fields(w.must(t, "", "logs", "--tail", "3", "flood"))
	if len(tail) != 6 {
		t.Errorf("the end of the log: %.200q", tail)
	}
	cancel()
	if err := <-followed; !errors.Is(err, context.Canceled) {
		t.Errorf("followed to line %d: %v", line, err)
	}
	w.must(t, "", "rm", "-f", "flood")
}
