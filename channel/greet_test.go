package channel

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bulkhead-project/bulkhead/channel/frame"
)

// TestGreetRetries: the hello is repeated after a second, and then every two seconds, until the caller's time is over.
func TestGreetRetries(t *testing.T) {
	for _, resume := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			near, far := net.Pipe()
			began, ended := time.Now(), make(chan struct{})
			var hellos []time.Duration
			raw := &firstByte{r: far}
			go func() {
				defer close(ended)
				d := frame.NewDecoder(raw, true)
				for {
					f, err := d.Next()
					if err != nil {
						return
					}
					if f.Kind == frame.Hello {
						hellos = append(hellos, time.Since(began))
					}
				}
			}()
			ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
			defer cancel()
			if _, err := Host(ctx, near, Options{Resume: resume}); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("resume %v: %v", resume, err)
			}
			if took := time.Since(began); took != 8*time.Second {
				t.Errorf("resume %v: it gives up after %v", resume, took)
			}
			<-ended
			if want := []time.Duration{0, 1e9, 3e9, 5e9, 7e9}; !slices.Equal(hellos, want) {
				t.Errorf("resume %v: hellos after %v, want %v", resume, hellos, want)
			}
			// Zeros before the hello end an earlier host's partial frame.
			if padded := raw.first == 0; padded != resume {
				t.Errorf("resume %v: the first hello is padded: %v", resume, padded)
			}
		})
	}
}

// firstByte records the first byte read.
type firstByte struct {
	r     io.Reader
	first byte
	seen  bool
}

func (f *firstByte) Read(p []byte) (int, error) {
	n, err := f.r.Read(p)
	if n > 0 && !f.seen {
		f.first, f.seen = p[0], true
	}
	return n, err
}
