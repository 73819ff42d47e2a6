package top

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"strconv"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/cli/internal/app"
	"github.com/bulkhead-project/bulkhead/cli/internal/output"
	"github.com/bulkhead-project/bulkhead/cli/internal/text"
	"github.com/bulkhead-project/bulkhead/cli/internal/tty"
	"github.com/bulkhead-project/bulkhead/door/run/api"
)

// firstGap is the time between the two samples of the first figures.
const firstGap = 500 * time.Millisecond

// Stats is the command stats.
func Stats(a *app.App) *cobra.Command {
	var f output.Format
	var once bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "stats [POD…]",
		Short: "Show the resource usage of pods: CPU, memory, network, disk",
		Long: `Show the resource usage of all running pods, or of the named ones, until Ctrl-C.

100 % of CPU is one processor. Memory is the part that is not easily freed; its limit is
the containers' or the VM's. HOST-MEM is the host memory that the pod's VM takes. Network
and disk count from the VM's start.`,
		Example: `  bulkhead stats
  bulkhead stats --no-stream web
  bulkhead stats -o json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := errors.Join(f.Valid(), app.Positive("interval", interval)); err != nil {
				return err
			}
			if f != "" {
				list, err := sample(cmd.Context(), a, args)
				if err != nil {
					return err
				}
				return a.Show(cmd.Context(), f, list, output.Views{})
			}
			ctx, stop := tty.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			m := &meter{}
			for wait := firstGap; ; wait = interval {
				list, err := sample(ctx, a, args)
				if ctx.Err() != nil {
					return nil
				}
				if err != nil {
					return err
				}
				first := m.last == nil
				all := m.add(list)
				if !first {
					if err := printStats(a, all, once); err != nil || once {
						return err
					}
				}
				select {
				case <-time.After(wait):
				case <-ctx.Done():
					return nil
				}
			}
		},
	}
	f.Add(cmd)
	cmd.Flags().BoolVar(&once, "no-stream", false, "print once and exit")
	cmd.Flags().DurationVar(&interval, "interval", 2*time.Second, "time between two updates")
	return cmd
}

// sample requests the usage of the named pods, or of all.
func sample(ctx context.Context, a *app.App, pods []string) ([]api.PodStats, error) {
	list := []api.PodStats{}
	err := a.Client.Call(ctx, "GET", "/v1/stats", url.Values{"pod": pods}, nil, &list)
	return list, err
}

// printStats prints a table of pods. On a terminal it replaces the previous table.
func printStats(a *app.App, all []figures, once bool) error {
	if !once && tty.IsTerminal(a.Out) {
		fmt.Fprint(a.Out, "\x1b[H\x1b[J")
	}
	return statsTable(a.Out, all)
}

func statsTable(w io.Writer, all []figures) error {
	sortFigures(all, "")
	var rows [][]string
	for _, u := range all {
		if u.container != "" {
			continue
		}
		row := []string{u.pod, "-", "-", "-", "-", "-", "-", "-"}
		if u.live {
			row = []string{
				u.pod,
				text.Percent(u.cpu),
				text.Size(u.memory) + " / " + text.Size(u.limit),
				text.Percent(float64(u.memory) / float64(max(1, u.limit))),
				hostMemory(u.host, text.Size),
				"-",
				pair(u.disk),
				strconv.Itoa(u.pids),
			}
			if u.network {
				row[5] = pair(u.net)
			}
		}
		rows = append(rows, row)
	}
	return output.Table(w, "POD CPU% MEMORY/LIMIT MEM% HOST-MEM NET-RX/TX DISK-R/W PIDS", rows)
}

// hostMemory formats a VM's memory on the host, or a dash.
func hostMemory[N int64 | float64](bytes N, text func(N) string) string {
	if bytes == 0 {
		return "-"
	}
	return text(bytes)
}

func pair(c api.Counters) string { return text.Size(c.In) + " / " + text.Size(c.Out) }
