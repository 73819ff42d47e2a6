package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/oci"
)

func (g *globals) list() *cobra.Command {
	var format string
	var quiet bool
	c := &cobra.Command{
		Use: "list", Short: "List containers", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			all, err := g.door.List()
			if err != nil {
				return err
			}
			switch {
			case quiet:
				for _, s := range all {
					fmt.Fprintln(c.OutOrStdout(), s.ID)
				}
				return nil
			case format == "json":
				return json.NewEncoder(c.OutOrStdout()).Encode(all)
			case format != "table":
				return fmt.Errorf("invalid format option")
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 12, 1, 3, ' ', 0)
			fmt.Fprint(w, "ID\tPID\tSTATUS\tBUNDLE\tCREATED\tOWNER\n")
			for _, s := range all {
				fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\n", s.ID, s.Pid, s.Status, s.Bundle, s.Created.Format(time.RFC3339Nano), s.Owner)
			}
			return w.Flush()
		},
	}
	c.Flags().StringVarP(&format, "format", "f", "table", "table or json")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "print only ids")
	return c
}

func (g *globals) pause() *cobra.Command {
	return &cobra.Command{
		Use: "pause ID", Short: "Suspend a container", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error { return g.door.Pause(c.Context(), args[0]) },
	}
}

func (g *globals) resume() *cobra.Command {
	return &cobra.Command{
		Use: "resume ID", Short: "Let a paused container go on", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error { return g.door.Resume(c.Context(), args[0]) },
	}
}

func (g *globals) ps() *cobra.Command {
	var format string
	c := &cobra.Command{
		Use: "ps ID [PS OPTIONS]", Short: "List the host's processes of a container", Args: atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			pids, err := g.door.Processes(args[0])
			if err != nil {
				return err
			}
			if format == "json" {
				return json.NewEncoder(c.OutOrStdout()).Encode(pids)
			}
			return printPS(c, pids, args[1:])
		},
	}
	c.Flags().StringVarP(&format, "format", "f", "table", "table or json")
	c.Flags().SetInterspersed(false)
	return c
}

// printPS prints the lines of ps about some processes.
func printPS(c *cobra.Command, pids []int, args []string) error {
	if len(args) == 0 {
		args = []string{"-ef"}
	}
	out, err := exec.CommandContext(c.Context(), "ps", args...).Output()
	if err != nil {
		return fmt.Errorf("ps: %w", err)
	}
	lines := strings.Split(string(out), "\n")
	column := -1
	for i, title := range strings.Fields(lines[0]) {
		if title == "PID" {
			column = i
		}
	}
	if column < 0 {
		return errors.New("couldn't find PID field in ps output")
	}
	fmt.Fprintln(c.OutOrStdout(), lines[0])
	for _, line := range lines[1:] {
		fields := strings.Fields(line)
		if len(fields) <= column {
			continue
		}
		for _, pid := range pids {
			if fields[column] == strconv.Itoa(pid) {
				fmt.Fprintln(c.OutOrStdout(), line)
			}
		}
	}
	return nil
}

// maxInput bounds a document that a command reads.
const maxInput = 1 << 20

func readJSON(path string, stdin io.Reader, v any) error {
	in := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		in = f
	}
	if err := json.NewDecoder(io.LimitReader(in, maxInput)).Decode(v); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	return nil
}

func (g *globals) spec() *cobra.Command {
	var bundle string
	var rootless bool
	c := &cobra.Command{
		Use: "spec", Short: "Write an example config.json", Args: cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			path := "config.json"
			if bundle != "" {
				path = bundle + "/" + path
			}
			if _, err := os.Lstat(path); err == nil {
				return errors.New("File config.json exists. Remove it first") //nolint:staticcheck // runc's text
			}
			b, err := json.MarshalIndent(oci.ExampleSpec(), "", "\t")
			if err != nil {
				return err
			}
			return os.WriteFile(path, append(b, '\n'), 0o666)
		},
	}
	c.Flags().StringVarP(&bundle, "bundle", "b", "", "directory of the bundle")
	c.Flags().BoolVar(&rootless, "rootless", false, "accepted; the example suits every user")
	return c
}

func (g *globals) features() *cobra.Command {
	return &cobra.Command{
		Use: "features", Short: "Print the supported features", Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return printJSON(c, oci.Features()) },
	}
}

func (g *globals) update() *cobra.Command {
	u := newUpdate()
	c := &cobra.Command{
		Use: "update ID", Short: "Change a container's limits", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			r := &specs.LinuxResources{}
			if u.file != "" {
				if err := readJSON(u.file, c.InOrStdin(), r); err != nil {
					return err
				}
			} else if err := u.resources(r); err != nil {
				return err
			}
			return g.door.Update(c.Context(), args[0], r)
		},
	}
	u.add(c)
	return c
}

func (g *globals) events() *cobra.Command {
	var stats bool
	var interval time.Duration
	c := &cobra.Command{
		Use: "events ID", Short: "Print a container's use of resources", Args: exactly(1),
		RunE: func(c *cobra.Command, args []string) error {
			return g.door.Events(c.Context(), args[0], oci.EventOptions{Once: stats, Interval: interval, Out: c.OutOrStdout()})
		},
	}
	c.Flags().BoolVar(&stats, "stats", false, "print once")
	c.Flags().DurationVar(&interval, "interval", 5*time.Second, "time between two lines")
	return c
}
