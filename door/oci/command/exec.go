package command

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/opencontainers/runtime-spec/specs-go"
	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/oci"
	spec "github.com/bulkhead-project/bulkhead/oci"
)

// execFlags are the flags of exec. Without a file, the process is the container's own with these changes.
type execFlags struct {
	process, cwd, user, console, pidFile string
	env, caps                            []string
	groups                               []uint
	tty, detach, noNewPrivs, ignored     bool
	label, profile, cgroup               string
	preserve                             int
}

func (x *execFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVarP(&x.process, "process", "p", "", "file with the process in JSON")
	f.StringVar(&x.cwd, "cwd", "", "working directory")
	f.StringVarP(&x.user, "user", "u", "", "UID[:GID]")
	f.StringArrayVarP(&x.env, "env", "e", nil, "NAME=VALUE")
	f.StringArrayVarP(&x.caps, "cap", "c", nil, "one more capability")
	f.UintSliceVarP(&x.groups, "additional-gids", "g", nil, "additional groups")
	f.BoolVarP(&x.tty, "tty", "t", false, "give the process a terminal")
	f.BoolVarP(&x.detach, "detach", "d", false, "do not wait for the end")
	f.BoolVar(&x.noNewPrivs, "no-new-privs", false, "forbid new privileges")
	f.StringVar(&x.console, "console-socket", "", "socket that gets the terminal")
	f.StringVar(&x.pidFile, "pid-file", "", "file for the process id")
	f.IntVar(&x.preserve, "preserve-fds", 0, "accepted; descriptors of the host do not reach the guest")
	f.StringVar(&x.label, "process-label", "", "accepted; the wall is the VM")
	f.StringVar(&x.profile, "apparmor", "", "accepted; the wall is the VM")
	f.StringVar(&x.cgroup, "cgroup", "", "accepted; it has no effect")
	f.BoolVar(&x.ignored, "ignore-paused", false, "accepted; it has no effect")
}

func (g *globals) exec(code *int) *cobra.Command {
	x := &execFlags{}
	c := &cobra.Command{
		Use: "exec ID COMMAND [ARGUMENT]...", Short: "Run another process in a container", Args: atLeast(1),
		RunE: func(c *cobra.Command, args []string) error {
			*code = 255 // runc's, if the process cannot run
			o := oci.ExecOptions{
				ID: args[0], PIDFile: x.pidFile, ConsoleSocket: x.console, Streams: [3]*os.File{os.Stdin, os.Stdout, os.Stderr},
			}
			var err error
			if o.Process, err = x.read(g, args, c); err != nil {
				return err
			}
			*code, err = g.door.RunExec(c.Context(), o, x.detach)
			return err
		},
	}
	x.add(c)
	return c
}

// read returns the process of the file or of the flags.
func (x *execFlags) read(g *globals, args []string, c *cobra.Command) (*specs.Process, error) {
	if x.process != "" {
		var raw json.RawMessage
		if err := readJSON(x.process, c.InOrStdin(), &raw); err != nil {
			return nil, err
		}
		p, err := spec.DecodeProcess(raw)
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", x.process, err)
		}
		return p, nil
	}
	if len(args) < 2 {
		return nil, fmt.Errorf("process args cannot be empty")
	}
	p, err := g.door.Process(args[0])
	if err != nil {
		return nil, err
	}
	p.Args, p.Terminal = args[1:], x.tty
	p.Env = append(p.Env, x.env...)
	if x.cwd != "" {
		p.Cwd = x.cwd
	}
	p.NoNewPrivileges = p.NoNewPrivileges || x.noNewPrivs
	for _, group := range x.groups {
		p.User.AdditionalGids = append(p.User.AdditionalGids, uint32(group))
	}
	if caps := p.Capabilities; caps != nil {
		for _, set := range []*[]string{&caps.Bounding, &caps.Effective, &caps.Permitted} {
			*set = append(*set, x.caps...)
		}
	}
	return p, x.setUser(p)
}

func (x *execFlags) setUser(p *specs.Process) error {
	if x.user == "" {
		return nil
	}
	user, group, grouped := strings.Cut(x.user, ":")
	uid, err := strconv.ParseUint(user, 10, 31)
	if err != nil {
		return fmt.Errorf("parsing %s as int for uid failed: %w", user, err)
	}
	p.User.UID = uint32(uid)
	if grouped {
		gid, err := strconv.ParseUint(group, 10, 31)
		if err != nil {
			return fmt.Errorf("parsing %s as int for gid failed: %w", group, err)
		}
		p.User.GID = uint32(gid)
	}
	return nil
}
