// Without these settings the runtime keeps files of the cgroup open. A compromised process could open them for
// writing.
//go:debug containermaxprocs=0
//go:debug updatemaxprocs=0

// Command bulkhead-share serves directories of the host to one pod, or attaches them for a server. Engines start
// it; do not run it by hand.
package main

import (
	"context"
	"fmt"
	"os"

	"github.com/bulkhead-project/bulkhead/share"
	"github.com/bulkhead-project/bulkhead/share/attach"
	"github.com/bulkhead-project/bulkhead/share/server"
)

func main() {
	err := fmt.Errorf("it is started by the engine: %s, %s, %s", share.Serve, share.Rehearse, share.Attach)
	switch {
	case len(os.Args) == 4 && os.Args[1] == share.Serve:
		err = server.Main(context.Background(), os.Args[2]) // the last argument is the pod's directory, for readers of ps
	case len(os.Args) == 3 && os.Args[1] == share.Rehearse:
		err = server.Rehearse(context.Background(), os.Args[2])
	case len(os.Args) == 2 && os.Args[1] == share.Attach:
		err = attach.Main(os.Stdin)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, share.Program+":", err)
		os.Exit(1)
	}
}
