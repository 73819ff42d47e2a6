package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkhead-project/bulkhead/sandbox/logs"
)

// TestKeep: a failed write is repeated every second until it succeeds. It is logged once, unless the log is full. A
// closed log and a gap end the attempts.
func TestKeep(t *testing.T) {
	disk := errors.New("disk")
	for _, tc := range []struct {
		name   string
		errs   []error // of the attempts; the next one succeeds
		want   error
		pauses int
		log    int
	}{
		{name: "at once"},
		{name: "a broken disk", errs: []error{disk, disk, disk}, pauses: 3, log: 1},
		{name: "a full log", errs: []error{fmt.Errorf("x: %w", logs.ErrFull), logs.ErrFull}, pauses: 2},
		{name: "a gap", errs: []error{logs.ErrGap}, want: logs.ErrGap},
		{name: "a closed log", errs: []error{logs.ErrFull, logs.ErrClosed}, want: logs.ErrClosed, pauses: 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			var log bytes.Buffer
			p := &Pump{Logger: slog.New(slog.NewTextHandler(&log, nil))}
			began := time.Now()
			tries := 0
			safe, err := p.keep(t.Context(), func() (int64, error) {
				tries++
				if tries <= len(tc.errs) {
					return 0, tc.errs[tries-1]
				}
				return 7, nil
			})
			if !errors.Is(err, tc.want) || (safe == 7) != (tc.want == nil) {
				t.Errorf("%s: %d, %v, want %v", tc.name, safe, err, tc.want)
			}
			if took := time.Since(began); took != time.Duration(tc.pauses)*time.Second {
				t.Errorf("%s: it took %v, want %d pauses", tc.name, took, tc.pauses)
			}
			if n := strings.Count(log.String(), "\n"); n != tc.log {
				t.Errorf("%s: logged %d times, want %d: %s", tc.name, n, tc.log, &log)
			}
		})
	}
}

// TestKeepEnds: output waits for a log until the context ends, or until the log is replaced.
func TestKeepEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "log")
		w, err := logs.Open(path+".record", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		p := &Pump{Log: w, Logger: slog.New(slog.DiscardHandler)}
		write := func() (int64, error) { return w.Write(logs.Stdout, 0, []byte("x\n")) }
		began := time.Now()
		why := errors.New("why")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 1500*time.Millisecond, why)
		defer cancel()
		if _, err := p.keep(ctx, write); !errors.Is(err, why) || time.Since(began) != 1500*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		began = time.Now()
		time.AfterFunc(100*time.Millisecond, func() { w.Reopen(openLog(t, path)) })
		if safe, err := p.keep(t.Context(), write); safe != 2 || err != nil || time.Since(began) != 100*time.Millisecond {
			t.Errorf("%d after %v: %v", safe, time.Since(began), err)
		}
	})
}
