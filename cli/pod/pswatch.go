package pod

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// psWatch prints the existing pods, then each pod that changes, until a signal.
func psWatch(ctx context.Context, a *app.App, q url.Values, f output.Format, pods []api.Pod) error {
	if f != "wide" {
		if err := f.Valid(); err != nil {
			return err
		}
	}
	if strings.HasPrefix(string(f), output.JSONPath) {
		return errors.New("-w prints a table, json or yaml")
	}
	w := &psWatcher{out: a.Out, format: f, seen: map[string]api.Pod{}}
	if err := w.start(pods); err != nil {
		return err
	}
	ctx, stop := tty.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	err := a.Client.Stream(ctx, "GET", "/v1/watch", q, nil, func(m api.Message) error {
		if m.Pod == nil {
			return nil
		}
		return w.changed(*m.Pod)
	})
	if errors.As(context.Cause(ctx), new(tty.SignalError)) {
		return nil
	}
	return err
}

// psWatcher prints a pod when it has changed.
type psWatcher struct {
	out     io.Writer
	format  output.Format
	view    psView
	columns *output.Columns
	seen    map[string]api.Pod // by UID, as last printed
}

// roomy is a pod of typical width. It sizes the columns for pods that do not exist yet.
var roomy = api.Pod{Created: time.Now(), Name: "a-pod-with-a-name", Status: "ContainerCreating", Namespace: "default"}

func (w *psWatcher) start(pods []api.Pod) error {
	w.view = newPsView(pods, w.format == "wide")
	if w.table() {
		w.columns = output.NewColumns(w.out, w.view.header(), w.view.rows(append(slices.Clone(pods), roomy)))
		if err := w.columns.Header(); err != nil {
			return err
		}
	}
	for _, p := range pods {
		if err := w.changed(p); err != nil {
			return err
		}
	}
	return nil
}

func (w *psWatcher) table() bool { return w.format == "" || w.format == "wide" }

// changed prints a pod if it differs from the last printed version.
func (w *psWatcher) changed(p api.Pod) error {
	if last, known := w.seen[p.UID]; known && reflect.DeepEqual(last, p) {
		return nil
	}
	first := len(w.seen) == 0
	w.seen[p.UID] = p
	if w.table() {
		return w.columns.Row(w.view.row(p))
	}
	if w.format == "yaml" && !first {
		fmt.Fprintln(w.out, "---")
	}
	return w.format.Print(w.out, p, nil)
}
