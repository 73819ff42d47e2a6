package node

import (
	"encoding/json"
	"net/http"
	"net/netip"

	"github.com/bulkhead-project/bulkhead/door/node/server/stats"
)

// settings are the node's settings under the names of a kubelet's configuration, as far as the node has them.
type settings struct {
	Kind               string   `json:"kind"`
	APIVersion         string   `json:"apiVersion"`
	Address            string   `json:"address"`
	Port               uint16   `json:"port"`
	StaticPodPath      string   `json:"staticPodPath,omitempty"`
	TLSCertFile        string   `json:"tlsCertFile,omitempty"`
	RotateCertificates bool     `json:"rotateCertificates"`
	ServerTLSBootstrap bool     `json:"serverTLSBootstrap"`
	ClusterDomain      string   `json:"clusterDomain,omitempty"`
	ClusterDNS         []string `json:"clusterDNS,omitempty"`
	MaxPods            int      `json:"maxPods"`
}

// registerMore registers the paths of statistics and settings at the node's API.
func (n *node) registerMore(mux *http.ServeMux) {
	n.series.Register(mux)
	figures := &stats.Node{Name: n.o.Name, Dir: n.o.Roots.Data, Source: n.runner.Usages, Statuses: n.runner.Statuses}
	figures.Register(mux)
	at, _ := netip.ParseAddrPort(n.o.Listen)                       // the node listens on it, so it parses
	text, _ := json.Marshal(map[string]settings{"kubeletconfig": { // plain data, cannot fail
		Kind: "KubeletConfiguration", APIVersion: "kubelet.config.k8s.io/v1beta1", Address: at.Addr().String(), Port: at.Port(),
		StaticPodPath: n.o.Manifests, TLSCertFile: n.o.Cert, RotateCertificates: n.o.Client != nil, ServerTLSBootstrap: n.o.RotateServing,
		ClusterDomain: n.o.ClusterDomain, ClusterDNS: n.o.ClusterDNS, MaxPods: n.o.MaxPods,
	}})
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // the client may have disconnected
	})
}
