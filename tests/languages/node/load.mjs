// Loads every contract at run time, as clients without generated code do: node load.mjs ROOT FILE...
import grpc from "@grpc/grpc-js";
import loader from "@grpc/proto-loader";

const [root, ...files] = process.argv.slice(2);
const definition = loader.loadSync(files, { includeDirs: [root], keepCase: true, longs: String, oneofs: true });
grpc.loadPackageDefinition(definition);
const services = Object.values(definition).filter((entry) => !("format" in entry));
console.log(`${services.length} services`);
