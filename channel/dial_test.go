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

// TestDialPatience: Dial closes a silent connection and opens another one with twice the patience and a padded hello.
// Any other failure is an error at once.
func TestDialPatience(t *testing.T) {
	refused := errors.New("refused")
	const deaf, answering, broken, none = 'd', 'a', 'b', 'n'
	for _, tc := range []struct {
		name     string
		conns    string // result of each connection
		patience time.Duration
		limit    time.Duration // of the context; 0 is an hour
		want     []time.Duration
		took     time.Duration
		err      error
	}{
		{name: "an answer at once", conns: "a", want: []time.Duration{0}},
		{name: "an answer over the third", conns: "dda", want: []time.Duration{0, 3e9, 9e9}, took: 9e9},
		{name: "a patience of its own", conns: "dda", patience: time.Second, want: []time.Duration{0, 1e9, 3e9}, took: 3e9},
		{name: "no connection", conns: "n", want: []time.Duration{0}, err: refused},
		{name: "a connection that is closed", conns: "b", want: []time.Duration{0}, err: io.ErrClosedPipe},
		{name: "never an answer", conns: "ddd", limit: 5 * time.Second, want: []time.Duration{0, 3e9}, took: 5e9, err: context.DeadlineExceeded},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			var at []time.Duration
			var guests []*firstByte
			connect := func(context.Context) (net.Conn, error) {
				kind := tc.conns[len(at)]
				at = append(at, time.Since(began))
				near, far := net.Pipe()
				guest := &firstByte{r: far}
				guests = append(guests, guest)
				switch kind {
				case none:
					return nil, refused
				case broken:
					go func() { io.ReadFull(far, make([]byte, frame.Head)); far.Close() }()
				case deaf, answering:
					go func() {
						d := frame.NewDecoder(guest, true)
						for f, err := d.Next(); err == nil; f, err = d.Next() {
							if kind == answering && f.Kind == frame.Hello {
								far.Write(frame.Append(nil, frame.Answer, f.Epoch, []byte("{}")))
							}
						}
					}()
				}
				return near, nil
			}
			if tc.limit == 0 {
				tc.limit = time.Hour
			}
			ctx, cancel := context.WithTimeout(t.Context(), tc.limit)
			defer cancel()
			s, err := Dial(ctx, connect, Options{Patience: tc.patience})
			if !slices.Equal(at, tc.want) || time.Since(began) != tc.took {
				t.Errorf("%s: connections after %v, done after %v, want %v and %v", tc.name, at, time.Since(began), tc.want, tc.took)
			}
			if err == nil {
				s.Close()
			}
			if !errors.Is(err, tc.err) {
				t.Errorf("%s: %v, want %v", tc.name, err, tc.err)
			}
			synctest.Wait()
			for i, guest := range guests {
				if padded := guest.seen && guest.first == 0; padded != (i > 0) {
					t.Errorf("%s: connection %d: the hello is padded: %v", tc.name, i, padded)
				}
			}
		})
	}
}
