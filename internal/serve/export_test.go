package serve

// Connections is how many clients are served at a time.
const Connections = connections

// On serves those who connect to a listener of a test.
var On = Server.on
