package main

import (
	"cmp"
	"context"
	"fmt"
	"os"

	"github.com/spf13/pflag"

	service "github.com/bulkhead-project/bulkhead/cri"
	"github.com/bulkhead-project/bulkhead/door/cri"
	"github.com/bulkhead-project/bulkhead/door/cri/config"
	"github.com/bulkhead-project/bulkhead/door/cri/nri"
	"github.com/bulkhead-project/bulkhead/door/setup"
	"github.com/bulkhead-project/bulkhead/engine"
	"github.com/bulkhead-project/bulkhead/internal/dirs"
	"github.com/bulkhead-project/bulkhead/internal/sdnotify"
	"github.com/bulkhead-project/bulkhead/network/cni"
)

// serveCRI runs `bulkhead cri` until ctx ends. It logs to stderr.
func serveCRI(ctx context.Context, args []string) error {
	var c config.Config
	flags := pflag.NewFlagSet("bulkhead-engine cri", pflag.ContinueOnError)
	c.Add(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := c.Check(); err != nil {
		return err
	}
	log, err := setup.Logger(c.LogLevel, c.LogFormat)
	if err != nil {
		return err
	}
	o := cri.Options{Socket: c.Socket(), Kubelet: c.Kubelet, Logs: c.Logs, Metrics: c.Metrics, Traces: c.Traces, Logger: log}
	if c.NRI {
		o.NRI = &nri.Options{}
	}
	handlers, err := config.ParseHandlers(c.Handlers)
	if err != nil {
		return err
	}
	o.Handlers = map[string]service.Handler{}
	for name, h := range handlers {
		o.Handlers[name] = service.Handler(h)
	}
	if o.Roots, err = dirs.Default(dirs.CRI); err != nil {
		return err
	}
	var e engine.Options
	if e.NoForks, e.Tenant, err = setup.Warm(cmp.Or(c.Warm, os.Getenv("BULKHEAD_WARM"))); err != nil {
		return fmt.Errorf("warm: %w", err)
	}
	if e.DefaultMemory, e.DefaultVCPUs, err = setup.Size(c.DefaultMemory, c.DefaultCPUs); err != nil {
		return err
	}
	if c.Network == config.CNI {
		e.CNI = &cni.Options{Conf: c.CNIConf, Bin: c.CNIBin}
	}
	o.Engine = e
	ready, done, err := sdnotify.Service(ctx, log)
	if err != nil {
		return err
	}
	defer done()
	return cri.Run(ctx, o, func() {
		log.Info("the CRI is served", "socket", o.Socket)
		ready()
	})
}
