package server

import (
	"encoding/json"
	"net/http"
)

// Settings are the node's settings under the names of a kubelet's configuration, as far as the node has them.
type Settings struct {
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

// register registers the path of the settings.
func (s Settings) register(mux *http.ServeMux) {
	s.Kind, s.APIVersion = "KubeletConfiguration", "kubelet.config.k8s.io/v1beta1"
	text, _ := json.Marshal(map[string]Settings{"kubeletconfig": s}) // plain data, cannot fail
	mux.HandleFunc("GET /configz", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(text) // the client may have disconnected
	})
}
