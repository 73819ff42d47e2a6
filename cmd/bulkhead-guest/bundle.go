package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/bulkhead-project/bulkhead/guest/build"
)

// custom is the source of files that do not come from a package.
const custom = "custom"

func bundleCommand() *cobra.Command {
	var o build.Options
	var kernelSource, crunSource string
	cmd := &cobra.Command{
		Use:   "bundle",
		Short: "Make the guest bundle of a kernel, its modules, the agent and crun",
		Example: `  bulkhead-guest bundle --kernel /boot/vmlinuz --modules /lib/modules/$(uname -r) \
      --agent bin/bulkhead-agent --crun build/crun/crun --out bin/guest`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			var err error
			if o.KernelSource, err = source(kernelSource); err != nil {
				return err
			}
			if o.CrunSource, err = source(crunSource); err != nil {
				return err
			}
			if o.CrunVersion, err = crunVersion(cmd.Context(), o.Crun); err != nil {
				return err
			}
			b, err := build.Bundle(o)
			if err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "guest: %s: Linux %s, crun %s, %d modules\n", b.Dir, b.Kernel.Release, b.Crun.Version, len(b.Modules))
			return nil
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.Kernel, "kernel", "", "the kernel: a bzImage or an uncompressed vmlinux")
	flags.StringVar(&o.Modules, "modules", "", "the directory of its modules")
	flags.StringVar(&o.Agent, "agent", "bin/bulkhead-agent", "the agent, static")
	flags.StringVar(&o.Crun, "crun", "build/crun/crun", "crun, static")
	flags.StringVar(&o.Launcher, "launcher", "build/launcher", "the launcher, static")
	flags.StringVar(&kernelSource, "kernel-source", "", "a file that names the package the kernel is from")
	flags.StringVar(&crunSource, "crun-source", "", "a file that names the package crun is from")
	flags.BoolVar(&o.KeepSignatures, "keep-signatures", false, "leave the modules signed, for a kernel that loads no others")
	flags.StringVar(&o.Out, "out", "bin/guest", "the directory to make")
	for _, name := range []string{"kernel", "modules"} {
		cobra.CheckErr(cmd.MarkFlagRequired(name))
	}
	return cmd
}

func source(file string) (string, error) {
	if file == "" {
		return custom, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("find its package: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}

// crunVersion asks crun itself. Its first line is "crun version 1.8.1".
func crunVersion(ctx context.Context, path string) (string, error) {
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", fmt.Errorf("ask %s for its version: %w", path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	version, ok := strings.CutPrefix(line, "crun version ")
	if !ok {
		return "", fmt.Errorf("ask %s for its version: it answered %q", path, line)
	}
	return version, nil
}
