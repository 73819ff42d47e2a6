package run

import (
	"fmt"
	"net"
	"strconv"

	"github.com/bulkhead-project/bulkhead/door/run/api"
	"github.com/bulkhead-project/bulkhead/engine"
)

// tellChosen tells which ports were chosen for those of the request that name none.
func tellChosen(req api.RunRequest, pods []newPod, out send) error {
	for i, text := range req.Ports {
		wanted, err := engine.ParsePort(text)
		if err != nil || wanted.HostPort != 0 {
			continue
		}
		chosen := pods[0].Ports[i]
		address := net.JoinHostPort(chosen.HostIp, strconv.Itoa(int(chosen.HostPort)))
		notice := fmt.Sprintf("port %d of the pod is published at %s", chosen.ContainerPort, address)
		if err := out(api.Message{Notice: notice}); err != nil {
			return err
		}
	}
	return nil
}
