package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/spf13/pflag"

	"github.com/bulkhead-project/bulkhead/door/cri"
	"github.com/bulkhead-project/bulkhead/door/cri/config"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
)

// serveCRI is the process of `bulkhead cri`, which ends with ctx. Its log goes to
// whoever has started it.
func serveCRI(ctx context.Context, args []string) error {
	var c config.Config
	flags := pflag.NewFlagSet("bulkhead-engine cri", pflag.ContinueOnError)
	c.Add(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	o := cri.Options{Kubelet: c.Kubelet, Logs: c.Logs, Logger: log}
	var err error
	if o.Socket, err = c.Socket(); err != nil {
		return err
	}
	if o.Roots, err = dirs.Default(); err != nil {
		return err
	}
	var e engine.Options
	if e.NoForks, e.Tenant, err = parseWarm(os.Getenv("BULKHEAD_WARM")); err != nil {
		return fmt.Errorf("BULKHEAD_WARM: %w", err)
	}
	o.Engine = e
	return cri.Run(ctx, o, func() { log.Info("the CRI is served", "socket", o.Socket) })
}
