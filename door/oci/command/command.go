// Package command is the command line of bulkhead-oci. It has runc's commands, flags, output and exit codes, because
// podman, docker and containerd call it as they call runc.
package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/door/oci"
	"github.com/bulkhead-project/bulkhead/internal/version"
)

// globals are the flags of all commands.
type globals struct {
	root, log, format, rootless, criu string
	debug, systemd                    bool
	door                              *oci.Door
}

// Main runs the command line and returns the exit code.
func Main(args []string, stdout, stderr io.Writer) int {
	g := &globals{}
	code := 0
	root := g.command(&code, stderr)
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	if err := root.Execute(); err != nil {
		g.report(stderr, err)
		return max(code, 1)
	}
	return code
}

// Command returns the command line, for its manual pages.
func Command() *cobra.Command { return (&globals{}).command(new(int), io.Discard) }

// command returns the command line. exec and run store the exit code of their process in code.
func (g *globals) command(code *int, stderr io.Writer) *cobra.Command {
	root := &cobra.Command{
		Use: "bulkhead-oci", Short: "Run the containers of OCI bundles in virtual machines",
		SilenceErrors: true, SilenceUsage: true, Version: version.Version,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
	}
	root.SetVersionTemplate(fmt.Sprintf("bulkhead-oci version %s\ncommit: %[1]s\nspec: %s\n", version.Version, oci.SpecVersion))
	root.Flags().BoolP("version", "v", false, "print the version")
	f := root.PersistentFlags()
	f.StringVar(&g.root, "root", "", "directory of the containers' records")
	f.StringVar(&g.log, "log", "", "file for messages (default: stderr)")
	f.StringVar(&g.format, "log-format", "text", "format of messages: text or json")
	f.BoolVar(&g.debug, "debug", false, "log more")
	f.BoolVar(&g.systemd, "systemd-cgroup", false, "read cgroup paths as SLICE:PREFIX:NAME")
	f.StringVar(&g.rootless, "rootless", "auto", "accepted, as runc has it; the user decides")
	f.StringVar(&g.criu, "criu", "", "accepted, as runc has it; it has no effect")
	root.PersistentPreRunE = func(*cobra.Command, []string) error {
		if err := errors.Join(keepInherited(), completePath()); err != nil {
			return err
		}
		return g.open(stderr)
	}
	root.AddCommand(g.create(), g.start(), g.state(), g.kill(), g.delete(), g.list(), g.spec(), g.features(),
		g.exec(code), g.run(code), g.pause(), g.resume(), g.ps(), g.update(), g.events(), g.network(),
		checkpoint("checkpoint"), checkpoint("restore"))
	return root
}

// open opens the door.
func (g *globals) open(stderr io.Writer) (err error) {
	level := slog.LevelWarn
	if g.debug {
		level = slog.LevelDebug
	}
	g.door, err = oci.New(oci.Options{
		Root: g.root, SystemdCgroup: g.systemd, Logger: slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level})),
	})
	return err
}

// report writes the error that ends the command to the log file, and then to stderr. Clients read the last line of the log.
// If a client has closed stderr, the write there ends this process.
func (g *globals) report(stderr io.Writer, err error) {
	defer fmt.Fprintln(stderr, "bulkhead-oci:", err)
	if g.log == "" {
		return
	}
	f, openErr := os.OpenFile(g.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if openErr != nil {
		fmt.Fprintln(stderr, "bulkhead-oci: open the log:", openErr)
		return
	}
	defer f.Close()
	if g.format != "json" {
		fmt.Fprintf(f, "time=%q level=error msg=%q\n", time.Now().Format(time.RFC3339), err)
		return
	}
	line, _ := json.Marshal(struct {
		Level string `json:"level"`
		Msg   string `json:"msg"`
		Time  string `json:"time"`
	}{"error", err.Error(), time.Now().Format(time.RFC3339)}) // strings always encode
	fmt.Fprintf(f, "%s\n", line)
}

// checkpoint refuses a command that does not exist yet.
func checkpoint(name string) *cobra.Command {
	return &cobra.Command{
		Use: name, Hidden: true, FParseErrWhitelist: cobra.FParseErrWhitelist{UnknownFlags: true},
		RunE: func(*cobra.Command, []string) error { return fmt.Errorf("%s is not supported", name) },
	}
}
