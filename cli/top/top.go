// Package top has the commands that show the resource usage of pods.
package top

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

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// Top is the command top.
func Top(a *app.App) *cobra.Command {
	var interval time.Duration
	var by string
	cmd := &cobra.Command{
		Use:   "top [POD…]",
		Short: "Show the resource usage of pods and containers on the whole screen",
		Long: `Show the resource usage of pods and containers on the whole screen, until you press q. c
sorts by CPU, m by memory, n by name, and the arrow keys select a line. 100 % of CPU is
one processor. Without a terminal it prints once.`,
		Example: `  bulkhead top
  bulkhead top --sort memory --interval 5s
  bulkhead top web db`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(app.Positive("interval", interval), app.Choice("sort", by, "cpu", "memory", "name")); err != nil {
				return err
			}
			t := &top{app: a, pods: args, interval: interval, view: view{sort: by}}
			if !tty.IsTerminal(a.Out) || !tty.IsTerminal(a.In) {
				return t.once(cmd.Context())
			}
			return t.run(cmd.Context())
		},
	}
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two updates")
	cmd.Flags().StringVar(&by, "sort", "cpu", "sort by cpu, memory or name")
	return cmd
}

// top is a full screen of figures. The goroutine of run does everything except requests and reading keys.
type top struct {
	app      *app.App
	pods     []string
	interval time.Duration
	meter    meter
	view     view
}

// sampled is a sample, or the error that prevented it.
type sampled struct {
	list []api.PodStats
	err  error
}

// once prints the current usage.
func (t *top) once(ctx context.Context) error {
	for range 2 {
		list, err := sample(ctx, t.app, t.pods)
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
		fmt.Fprintln(t.app.Out, line)
	}
	return nil
}

// The terminal restores the earlier screen at the end.
const (
	enterScreen = "\x1b[?1049h\x1b[?25l"
	leaveScreen = "\x1b[?25h\x1b[?1049l"
)

func (t *top) run(ctx context.Context) error {
	// Take the first sample before the screen, so that an error is an ordinary line.
	list, err := sample(ctx, t.app, t.pods)
	if err != nil {
		return err
	}
	t.view.all = t.meter.add(list)
	in, out := os.Stdin, os.Stdout
	raw, err := tty.MakeRaw(in, out, leaveScreen)
	if err != nil {
		return err
	}
	defer raw.Restore()
	fmt.Fprint(out, enterScreen)
	ctx, stop := tty.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	resized := make(chan os.Signal, 1)
	signal.Notify(resized, syscall.SIGWINCH)
	defer signal.Stop(resized)
	keys := make(chan []byte)
	go readKeys(ctx, in, keys)
	t.view.colour = tty.Colours(out)
	answers := make(chan sampled, 1)
	look := time.NewTimer(firstGap)
	defer look.Stop()
	for {
		t.draw(out)
		select {
		case <-ctx.Done():
			return app.SignalExit(ctx)
		case <-resized:
		case k, ok := <-keys:
			if !ok || !t.key(k) {
				return nil
			}
		case <-look.C:
			go func() { // ends with ctx; the channel has room for its answer
				list, err := sample(ctx, t.app, t.pods)
				answers <- sampled{list, err}
			}()
		case got := <-answers:
			t.update(got)
			look.Reset(t.interval)
		}
	}
}

func (t *top) update(got sampled) {
	t.view.note = ""
	if got.err != nil {
		t.view.note = "the figures are old: " + text.Plain(got.err.Error())
		return
	}
	t.view.all = t.meter.add(got.list)
}

// draw writes the whole screen at once over the previous one, to avoid flicker.
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
	_, _ = out.Write(b.Bytes()) // a closed terminal ends us by its signal
}
