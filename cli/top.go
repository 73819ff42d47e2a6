package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/bulkhead-project/bulkhead/door/run/api"
)

func (a *app) topCmd() *cobra.Command {
	var interval time.Duration
	var by string
	cmd := &cobra.Command{
		Use:   "top [POD…]",
		Short: "Show what pods and their containers use, on the whole screen",
		Long: `Show what pods and their containers use, on the whole screen, until q: c sorts by CPU,
m by memory, n by name, the arrows select a line. 100 % of CPU is one processor. Without
a terminal it prints once.`,
		Example: `  bulkhead top
  bulkhead top --sort memory --interval 5s
  bulkhead top web db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(positive("interval", interval), choice("sort", by, "cpu", "memory", "name")); err != nil {
				return err
			}
			t := &top{app: a, pods: args, interval: interval, view: topView{sort: by}}
			if !isTerminal(a.out) || !isTerminal(a.in) {
				return t.once(cmd.Context())
			}
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two looks")
	cmd.Flags().StringVar(&by, "sort", "cpu", "order: cpu, memory or name")
	return cmd
}

// top is a full screen of figures. All but the questions and the keyboard is
// done by the goroutine of run.
type top struct {
	app      *app
	pods     []string
	interval time.Duration
	meter    meter
	view     topView
}

// looked is a sample, or why there is none.
type looked struct {
	list []api.PodStats
	err  error
}

// once prints what is used now.
func (t *top) once(ctx context.Context) error {
	for range 2 {
		list, err := t.app.sample(ctx, t.pods)
		if err != nil {
			return err
		}
		if first := t.meter.last == nil; first {
			t.meter.add(list)
			select {
			case <-time.After(firstGap):
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		t.view.all = t.meter.add(list)
	}
	sortFigures(t.view.all, t.view.sort)
	t.view.width, t.view.height, t.view.now = 160, len(t.view.all)+4, time.Now()
	for _, line := range t.view.lines()[:len(t.view.all)+2] {
		fmt.Fprintln(t.app.out, line)
	}
	return nil
}

// The screen that was there before comes back at the end.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

func (t *top) run(ctx context.Context) error {
	// The first look is taken before the screen is: its error is a line.
	list, err := t.app.sample(ctx, t.pods)
	if err != nil {
		return err
	}
	t.view.all = t.meter.add(list)
	in, out := os.Stdin, os.Stdout
	raw, err := makeRaw(in, out, leaveScreen)
	if err != nil {
		return err
	}
	defer raw.restore()
	fmt.Fprint(out, enterScreen)
	ctx, stop := catch(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	keys := make(chan []byte)
	go readKeys(ctx, in, keys)
	t.view.colour = colours(out)
	answers := make(chan looked, 1)
	look := time.NewTimer(firstGap)
	defer look.Stop()
	for {
		t.draw(out)
		select {
		case <-ctx.Done():
			return signalExit(ctx)
		case <-resized:
		case k, ok := <-keys:
			if !ok || !t.key(k) {
				return nil
			}
		case <-look.C:
			go func() { // ends with ctx, and has room for its answer
				list, err := t.app.sample(ctx, t.pods)
				answers <- looked{list, err}
			}()
		case got := <-answers:
			t.take(got)
			look.Reset(t.interval)
		}
	}
}

// signalExit is the exit code of a command that a signal has ended.
func signalExit(ctx context.Context) error {
	if s := (signalError{}); errors.As(context.Cause(ctx), &s) {
		return ExitError(128 + int(s.Signal))
	}
	return ctx.Err()
}

func (t *top) take(got looked) {
	t.view.note = ""
	if got.err != nil {
		t.view.note = "the figures are old: " + plain(got.err.Error())
		return
	}
	t.view.all = t.meter.add(got.list)
}

// draw puts the whole screen out at once, over the one before, so that nothing
// flickers.
func (t *top) draw(out *os.File) {
	width, height, err := term.GetSize(int(out.Fd()))
	if err != nil || width < 1 || height < 1 {
		width, height = 80, 24
	}
	t.view.width, t.view.height, t.view.now = width, height, time.Now()
	sortFigures(t.view.all, t.view.sort)
	var b bytes.Buffer
	b.WriteString("\x1b[H")
	for i, line := range t.view.lines() {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(line + "\x1b[K")
	}
	b.WriteString("\x1b[J")
	_, _ = out.Write(b.Bytes()) // a terminal that is gone ends us by its signal
}

// key does what a key is for, and says whether top goes on.
func (t *top) key(k []byte) bool {
	switch string(k) {
	case "q", "Q", "\x03", "\x04":
		return false
	case "c", "C":
		t.view.sort = "cpu"
	case "m", "M":
		t.view.sort = "memory"
	case "n", "N":
		t.view.sort = "name"
	case "\x1b[A", "\x1bOA", "k":
		t.view.move(-1)
	case "\x1b[B", "\x1bOB", "j":
		t.view.move(1)
	case "\x1b[5~":
		t.view.move(3 - t.view.height)
	case "\x1b[6~":
		t.view.move(t.view.height - 3)
	}
	return true
}

// readKeys sends each key as the bytes that the terminal makes of it. It lives
// until the terminal's end, or the process's: a read cannot be taken back.
func readKeys(ctx context.Context, in *os.File, keys chan<- []byte) {
	defer close(keys)
	buf := make([]byte, 64)
	for {
		n, err := in.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) > 0; {
			k := firstKey(rest)
			rest = rest[len(k):]
			select {
			case keys <- bytes.Clone(k):
			case <-ctx.Done():
				return
			}
		}
	}
}

// firstKey is the first key of what was typed: a byte, or an escape sequence.
func firstKey(typed []byte) []byte {
	if typed[0] != 0x1b || len(typed) < 3 || typed[1] != '[' && typed[1] != 'O' {
		return typed[:1]
	}
	for i := 2; i < len(typed); i++ {
		if typed[i] >= 0x40 && typed[i] <= 0x7e {
			return typed[:i+1]
		}
	}
	return typed
}
